// What pages need beyond htmx. Every page works without it, except for live updates.

// Forms with data-draft keep what was typed: a reload or another device shows it again.
for (const form of document.querySelectorAll("form[data-draft]")) {
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

// A slider shows its number.
for (const slider of document.querySelectorAll("input[data-output]")) {
  const output = document.querySelector(`label[for="${CSS.escape(slider.id)}"] output`);
  const show = () => { output.textContent = slider.value; };
  slider.addEventListener("input", show);
  show();
}
