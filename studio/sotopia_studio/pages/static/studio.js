// What pages need beyond htmx. Every page works without it, except for live updates.

// Forms with data-draft keep what was typed: a reload or another device shows it again.
const timers = new WeakMap();
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-draft]");
  if (!form) return;
  clearTimeout(timers.get(form));
  timers.set(form, setTimeout(() => {
    const body = new URLSearchParams(new FormData(form));
    body.set("form", form.dataset.draft);
    fetch(form.dataset.draftTo ?? "/study/draft", { method: "POST", body });
  }, 700));
});
document.addEventListener("submit", (event) => clearTimeout(timers.get(event.target)));

// On a phone the navigation scrolls sideways: to the page that is open.
document.querySelector(".banner nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// A slider shows its number.
for (const slider of document.querySelectorAll("input[data-output]")) {
  const output = document.querySelector(`label[for="${CSS.escape(slider.id)}"] output`);
  const show = () => { output.textContent = slider.value; };
  slider.addEventListener("input", show);
  show();
}

// A live part of a page asks for itself anew whenever the server says that something has changed.
for (const part of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(part.dataset.live);
  const last = Number(part.dataset.number);
  let timer = 0;
  let unsent = ""; // words whose form is gone, since the turn passed while they were being typed
  source.addEventListener("message", (event) => {
    if (Number(event.lastEventId) <= last) return; // the page shows it already
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await fetch(part.dataset.view);
      if (!answer.ok) return;
      const [scrolled, turns] = [window.scrollY, part.querySelectorAll(".turn").length];
      unsent = part.querySelector("form textarea")?.value ?? unsent;
      // Morphing keeps equal nodes, and with them the focus and a screen reader's place. The form of the same turn is
      // skipped (`morphSkip` in base.html), so that nothing changes under the hands of a person who is typing.
      await htmx.swap({ target: part, sourceElement: part, text: await answer.text(), swap: "innerMorph" });
      const words = part.querySelector("form textarea");
      if (words && !words.value) words.value = unsent;
      window.scrollTo(0, scrolled);
      [...part.querySelectorAll(".turn")].slice(turns).forEach((turn) => turn.classList.add("new"));
      takeUp(part);
    }, 30);
  });
}

// Whose turn it is again goes on with the keyboard where they write; a finger would only get its keyboard in the way.
function takeUp(part) {
  if (!part?.querySelector(".turn") || !matchMedia("(pointer: fine)").matches) return;
  if (document.activeElement === document.body) part.querySelector("form textarea")?.focus({ preventScroll: true });
}
takeUp(document.querySelector("[data-live]"));

const editable = "input, select, textarea, [contenteditable]";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(editable)) return;
  const rel = { j: "next", k: "prev" }[event.key];
  if (rel) document.querySelector(`a[rel="${rel}"]`)?.click();
});

// A deadline counts down where one is shown; the server decides when it is over.
setInterval(() => {
  for (const clock of document.querySelectorAll("[data-deadline]")) {
    const left = Math.max(0, Math.round(Number(clock.dataset.deadline) - Date.now() / 1000));
    clock.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} left`;
  }
}, 1000);
