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

// Positions are set and nothing is asked to scroll into view, which in some browsers is also where the Tab key then goes on.

// On a phone the navigation scrolls sideways: to the page that is open.
const current = document.querySelector(".banner nav [aria-current]");
if (current) {
  const [link, nav] = [current.getBoundingClientRect(), current.closest("nav").getBoundingClientRect()];
  current.closest("nav").scrollLeft += (link.left + link.right - nav.left - nav.right) / 2;
}

// A slider shows its number.
for (const slider of document.querySelectorAll("input[data-output]")) {
  const output = document.querySelector(`label[for="${CSS.escape(slider.id)}"] output`);
  const show = () => { output.textContent = slider.value; };
  slider.addEventListener("input", show);
  show();
}

// Sliders of one question are a distribution: each shows its share, and none means that the answer is unknown.
function shares(question) {
  const sliders = [...question.querySelectorAll("input[type=range]")];
  const total = sliders.reduce((sum, slider) => sum + Number(slider.value), 0);
  for (const slider of sliders) {
    const share = total ? `${Math.round((100 * slider.value) / total)} %` : "unknown";
    slider.parentElement.querySelector("output").textContent = share;
    slider.setAttribute("aria-valuetext", share);
  }
}
document.addEventListener("input", (event) => {
  const question = event.target.closest("[data-shares]");
  if (question) shares(question);
});
document.querySelectorAll("[data-shares]").forEach(shares);

// A live part of a page asks for itself anew whenever the server says that something has changed, and sends its form
// without leaving the page.
for (const part of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(part.dataset.live);
  const shown = () => Number(part.querySelector("[data-number]").dataset.number);
  let timer = 0;
  let unsent = ""; // words whose form is gone, since the turn passed while they were being typed
  const show = async (answer) => {
    const text = await answer.text();
    const state = new DOMParser().parseFromString(text, "text/html").querySelector("[data-number]");
    if (!state) return location.reload(); // such as after a login that has run out: the server says so
    if (Number(state.dataset.number) < shown()) return; // a later answer has overtaken this one
    const turns = part.querySelectorAll(".turn").length;
    const form = part.querySelector("form.answer");
    if (form?.elements.argument && !form.dataset.sent) unsent = form.elements.argument.value;
    // Morphing keeps equal nodes, and with them the focus and a screen reader's place. The form of the same turn is
    // skipped (`morphSkip` in base.html), so that nothing changes under the hands of a person who is typing.
    await htmx.swap({ target: part, sourceElement: part, text, swap: "innerMorph" });
    const words = part.querySelector("form textarea");
    if (words && !words.value) words.value = unsent;
    const news = [...part.querySelectorAll(".turn")].slice(turns);
    news.forEach((turn) => turn.classList.add("new"));
    if (news.length) toNewest(part);
    part.querySelectorAll("[data-shares]").forEach(shares);
    takeUp(part);
  };
  source.addEventListener("message", (event) => {
    // Every event has a number but a delay, which is news whatever the page shows.
    if (event.data !== "delay" && Number(event.lastEventId) <= shown()) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await fetch(part.dataset.view);
      if (answer.ok) show(answer);
    }, 30);
  });
  part.addEventListener("submit", async (event) => {
    const form = event.target;
    event.preventDefault();
    if (form.dataset.sent) return; // a double click
    form.dataset.sent = "1";
    const words = form.elements.argument?.value ?? "";
    try {
      const body = new URLSearchParams(new FormData(form, event.submitter));
      const answer = await fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
      unsent = answer.ok ? "" : words;
      if (answer.ok) document.querySelector(".briefing")?.removeAttribute("open");
      await show(answer);
      if (!answer.ok) delete form.dataset.sent;
    } catch {
      delete form.dataset.sent;
      part.querySelector("[data-unreachable]").hidden = false;
    }
  });
  if (!location.hash) toNewest(part);
}

// A proposal is put into the form, where the person can change it; nothing is sent.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fill]");
  const form = button && document.querySelector("form[data-draft]");
  if (!form) return;
  for (const [name, value] of Object.entries({ ...JSON.parse(button.dataset.fill), copied: "1" })) {
    const fields = [...form.elements].filter((field) => field.name === name);
    for (const field of fields) {
      if (field.type === "checkbox") field.checked = value.includes(field.value);
      else if (field.type === "radio") field.checked = field.value === value;
      else field.value = value;
    }
    if (!fields.length && name === "copied") form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  form.querySelectorAll("textarea, [name=move]:checked").forEach((field) => field.dispatchEvent(new Event("input", { bubbles: true })));
  form.querySelector("textarea").focus();
});

// The newest words in view: all of them, or their beginning where they are too long for it.
function toNewest(part) {
  part.querySelector(".composer").scrollTop = 0;
  const [talk, turn] = [part.querySelector(".talk"), [...part.querySelectorAll(".turn")].at(-1)];
  talk.scrollTop = 0; // its end, since it is a reversed column; there it stays while the form grows
  if (!turn) return;
  const scrolls = getComputedStyle(talk).overflowY === "auto"; // in a low window the page does
  const view = scrolls ? talk.getBoundingClientRect() : { top: 0, bottom: innerHeight };
  const [box, margin] = [turn.getBoundingClientRect(), parseFloat(getComputedStyle(turn).scrollMarginTop)];
  const [above, below] = [box.top - margin - view.top, box.bottom + margin - view.bottom];
  if (above < 0 || below > 0) (scrolls ? talk : window).scrollBy(0, above < 0 || above < below ? above : below);
}

// Whose turn it is again goes on with the keyboard where they write; a finger would only get its keyboard in the way.
function takeUp(part) {
  if (!part?.querySelector(".turn") || !matchMedia("(pointer: fine)").matches) return;
  if (document.activeElement === document.body) part.querySelector("form textarea")?.focus({ preventScroll: true });
}
takeUp(document.querySelector("[data-live]"));

// Below a field, what the name in it means: the text of that option of its list.
for (const line of document.querySelectorAll("[data-about]")) {
  const input = document.getElementById(line.dataset.about);
  const show = () => {
    const name = input.value.trim().split(":")[0];
    line.textContent = [...input.list.options].find((option) => option.value === name)?.textContent ?? "";
  };
  input.addEventListener("input", show);
  show();
}

// A page that waits asks for itself, and goes on as soon as there is another one.
for (const part of document.querySelectorAll("[data-again]")) {
  setInterval(async () => {
    const answer = await fetch(location.href).catch(() => null);
    const there = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-again]");
    if (there) await htmx.swap({ target: part, sourceElement: part, text: there.innerHTML, swap: "innerMorph" });
    else if (answer && answer.status < 500) location.assign(answer.url);
  }, 1000 * part.dataset.again);
}

const editable = "input, select, textarea, [contenteditable]";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(editable)) return;
  const rel = { j: "next", k: "prev" }[event.key];
  if (rel) document.querySelector(`a[rel="${rel}"]`)?.click();
});

// A deadline counts down where one is shown; the server decides when it is over.
setInterval(() => {
  for (const clock of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, Math.round(Date.now() / 1000 - Number(clock.dataset.since)));
    clock.textContent = `(${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} so far)`;
  }
  for (const clock of document.querySelectorAll("[data-deadline]")) {
    const left = Math.max(0, Math.round(Number(clock.dataset.deadline) - Date.now() / 1000));
    clock.textContent = "short" in clock.dataset ? `${left} s` : `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} left`;
  }
}, 1000);

// What somebody has unfolded in the builder stays so when a row is added.
htmx.registerExtension("unfolded", {
  htmx_before_morph_attr: (element, { attrName }) => !(attrName === "open" && element.closest("#builder")),
});
