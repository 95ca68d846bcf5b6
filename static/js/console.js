// What htmx cannot do: clocks that tick, digests that copy, and a poll that disturbs nobody.
"use strict";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function span(seconds) {
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [unit, size] = UNITS[first];
  const whole = Math.floor(seconds / size);
  const next = UNITS[first + 1];
  // One unit is enough, except where the second one changes what a person would do.
  if (next && whole < 10 && unit !== "min") {
    const rest = Math.floor((seconds - whole * size) / next[1]);
    if (rest) return `${whole} ${unit} ${rest} ${next[0]}`;
  }
  return `${whole} ${unit}`;
}

// The server's clock counts, not this computer's: every page says when it was made.
let skew = 0;
const made = document.querySelector("[data-now]");
if (made) skew = Date.parse(made.dataset.now) - Date.now();

function tick() {
  const now = Date.now() + skew;
  for (const element of document.querySelectorAll("time[data-show]")) {
    const seconds = Math.round((now - Date.parse(element.dateTime)) / 1000);
    const text = {
      ago: () => (seconds < 1 ? "now" : `${span(seconds)} ago`),
      age: () => span(Math.max(0, seconds)),
      left: () => (seconds < 0 ? `${span(-seconds)} left` : `expired ${span(seconds)} ago`),
      lease: () => (seconds < 0 ? `${span(-seconds)} left` : `ran out ${span(seconds)} ago`),
      until: () => (seconds < 0 ? `in ${span(-seconds)}` : "now"),
    }[element.dataset.show]();
    if (element.textContent !== text) element.textContent = text;
    // Near its end a request is urgent; a lease, which is renewed all the time, only after it.
    const urgentFrom = { left: -900, lease: 0 }[element.dataset.show];
    if (urgentFrom !== undefined) element.classList.toggle("urgent", seconds > urgentFrom);
  }
  // Over is over at once, also when the next poll does not come (case D1).
  for (const box of document.querySelectorAll("[data-until]")) {
    if (now < Date.parse(box.dataset.until)) continue;
    for (const button of box.querySelectorAll("button[type=submit]")) button.disabled = true;
  }
}

function localTitles(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const local = new Date(element.dateTime);
    element.dataset.local = "";
    element.title = `${element.title}\n${local.toLocaleString()} here`;
  }
}

function enliven(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
  localTitles(root);
  tick();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  event.preventDefault();
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("done");
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => button.classList.remove("done"), 1500);
});

// A box that must be ticked may lie in a folded part: unfold it, so that it can be asked for.
document.addEventListener("invalid", (event) => {
  for (let fold = event.target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
}, true);

// One press, one request: the pressed button says what it does, the others step back.
document.addEventListener("submit", (event) => {
  const pressed = event.submitter;
  if (event.target.dataset.sent) return event.preventDefault();
  if (!pressed || event.target.method !== "post") return;
  // What is sent is in flight for this request alone: others on the page can still be answered.
  for (const form of document.forms) {
    if (form.action !== event.target.action) continue;
    form.dataset.sent = "yes";
    for (const button of form.querySelectorAll("button.button")) {
      button.setAttribute("aria-disabled", "true");
    }
  }
  if (!pressed.dataset.busy) return;
  pressed.dataset.idle = pressed.textContent;
  pressed.textContent = pressed.dataset.busy;
});
// Who comes back finds the form as it was before it was sent.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
    for (const button of form.querySelectorAll("button[aria-disabled]")) {
      button.removeAttribute("aria-disabled");
      if (button.dataset.idle) button.textContent = button.dataset.idle;
    }
  }
});

// What was changed in a form of arguments shows before it is sent; a kind is taken up at once.
document.addEventListener("input", (event) => {
  const part = event.target.closest("[data-part]");
  if (!part) return;
  const fields = [...part.querySelectorAll("textarea, input[type=text], select")];
  const differs = fields.some((field) =>
    field.matches("select")
      ? [...field.options].some((option) => option.selected !== option.defaultSelected)
      : field.value !== field.defaultValue,
  );
  part.classList.toggle("changed", differs || part.hasAttribute("data-changed"));
  if (event.target.matches("select.edit-kind")) {
    event.target.form.querySelector("button[value=refresh]")?.click();
  }
});

// A poll never takes away what a person is reading or typing.
let opened = [];
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (!part.matches("[data-live]")) return;
  const busy = part.querySelector("details[data-hold][open], form :focus");
  const reading = document.getSelection();
  const selecting = reading && !reading.isCollapsed && part.contains(reading.anchorNode);
  if (document.hidden || busy || selecting) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  opened = [...event.detail.target.querySelectorAll("details[id][open]")].map((d) => d.id);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  enliven(document);
});

// On a narrow screen the places are a line that scrolls sideways: it shows where one is. Nothing but
// the line moves, for the page may have been opened at one of its parts.
const here = document.querySelector(".nav a[aria-current]");
if (here && !CSS.supports("scroll-initial-target", "nearest")) {
  const line = here.closest(".nav");
  const [place, frame] = [here.getBoundingClientRect(), line.getBoundingClientRect()];
  line.scrollLeft += place.x + place.width / 2 - frame.x - frame.width / 2;
}

setInterval(tick, 1000);
enliven(document);
