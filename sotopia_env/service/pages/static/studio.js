// What pages need beyond htmx. Every page works without it, except for live updates.

// Forms with data-draft keep what was typed: a reload or another device shows it again.
function keepDrafts(root) {
  for (const form of root.querySelectorAll("form[data-draft]")) {
    let timer = 0;
    form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const body = new URLSearchParams(new FormData(form));
        body.set("form", form.dataset.draft);
        fetch(form.dataset.draftTo ?? "/study/draft", { method: "POST", body });
      }, 700);
    });
    form.addEventListener("submit", () => clearTimeout(timer));
  }
}
keepDrafts(document);

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
  source.addEventListener("message", (event) => {
    if (Number(event.lastEventId) <= last) return; // the page shows it already
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await fetch(part.dataset.view);
      if (!answer.ok) return;
      const scrolled = window.scrollY;
      part.innerHTML = await answer.text();
      keepDrafts(part);
      window.scrollTo(0, scrolled);
      part.querySelector(".turn:last-child")?.classList.add("new");
    }, 30);
  });
}
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
