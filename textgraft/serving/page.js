"use strict";
// Asks the model what is in the fields and shows what it says. All text goes in as text, never as HTML.

const byId = (id) => document.getElementById(id);

function element(tag, text, css) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (css) made.className = css;
  return made;
}

const percent = (share) => (100 * share).toFixed(1) + " %";

// For each kind of model: its fields, a request made of what stands in them, and how an answer is shown.
const FORMS = {
  texts: {
    fields: [["text", "A text", 5]],
    request: (given) => ({ texts: [given.text] }),
    example: { texts: ["…"] },
  },
  pairs: {
    fields: [["first", "The first text", 3], ["second", "The second text", 3]],
    request: (given) => ({ texts: [[given.first, given.second]] }),
    example: { texts: [["…", "…"]] },
  },
  choices: {
    fields: [["context", "The context", 3], ["question", "A question about it, if there is one", 1], ["options", "The options, one a line", 4]],
    request: (given) => ({
      texts: [{
        context: given.context,
        question: given.question,
        options: given.options.split("\n").map((line) => line.trim()).filter(Boolean),
      }],
    }),
    example: { texts: [{ context: "…", question: "…", options: ["…", "…"] }] },
  },
  questions: {
    fields: [["context", "A text", 6], ["question", "A question about it", 1]],
    request: (given) => ({ questions: [{ context: given.context, question: given.question }] }),
    example: { questions: [{ context: "…", question: "…" }] },
  },
};

const SHOWN = {
  "/predict": (answer, request) => {
    const found = answer.predictions[0];
    const label = Array.isArray(found.label) ? found.label.join(", ") || "no label" : found.label;
    const parts = [element("h2", found.option ?? (typeof label === "number" ? label.toPrecision(4) : label))];
    if (found.known === false) parts.push(element("p", "The model knows nothing in this text: its answer is a guess."));
    if (found.probabilities) {
      const bars = element("div", undefined, "bars");
      const options = request.texts[0].options;
      const ranked = Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]);
      for (const [label, share] of ranked) {
        const name = options ? options[label - 1] : label;
        const meter = element("meter");
        meter.value = share;
        meter.setAttribute("aria-label", name);
        bars.append(element("span", name), meter, element("span", percent(share)));
      }
      parts.push(bars);
    }
    if (found.explanation) parts.push(...weighed(request.texts[0], found.explanation));
    return parts;
  },
  "/tag": (answer) => {
    const found = answer.texts[0];
    const spans = found.entities
      ? found.entities.map((e) => [e.start, e.end, e.type, e.probability])
      : found.words.map((w) => [w.start, w.end, w.tag, w.probability]);
    return [marked(found.text, spans)];
  },
  "/answer": (answer, request) => {
    const found = answer.answers[0];
    const parts = [element("h2", found.answer || "No answer in this text")];
    const best = found.best.find((one) => one.text === found.answer && one.text);
    if (best) parts.push(marked(request.questions[0].context, [[best.start, best.end, "", best.probability]]));
    const list = element("ol");
    for (const one of found.best) list.append(element("li", (one.text || "no answer") + " (" + percent(one.probability) + ")"));
    parts.push(list);
    return parts;
  },
};

// A text with stretches marked. Offsets count characters as Python does, which are not JavaScript's units.
function marked(text, spans) {
  const characters = Array.from(text);
  const shown = element("p", undefined, "read");
  shown.dir = "auto";
  let place = 0;
  for (const [start, end, name, probability] of spans) {
    shown.append(characters.slice(place, start).join(""));
    const mark = element("mark", characters.slice(start, end).join(""));
    if (probability !== undefined) mark.title = percent(probability);
    if (name) mark.append(element("small", name));
    shown.append(mark);
    place = end;
  }
  shown.append(characters.slice(place).join(""));
  return shown;
}

// A text, or two, with each part as dark as it matters: green speaks for the answer, red against it.
function weighed(given, explanation) {
  const most = Math.max(...explanation.parts.map((part) => Math.abs(part.weight)), 1e-9);
  const what = explanation.label === null ? "the number" : "“" + explanation.label + "”";
  const shown = [element("p", "What speaks for " + what + " (green) and against it (red):", "quiet")];
  [given].flat().forEach((text, side) => {
    const spans = explanation.parts.filter((part) => (part.side ?? 0) === side);
    const paragraph = marked(text, spans.map((part) => [part.start, part.end]));
    paragraph.querySelectorAll("mark").forEach((mark, number) => {
      const weight = spans[number].weight;
      mark.className = weight > 0 ? "for" : "against";
      mark.style.setProperty("--share", Math.round(70 * Math.abs(weight) / most) + "%");
      mark.title = (weight > 0 ? "+" : "") + weight.toFixed(2);
    });
    shown.push(paragraph);
  });
  return shown;
}

function show(parts, wrong) {
  const answer = byId("answer");
  answer.classList.toggle("wrong", Boolean(wrong));
  answer.replaceChildren(...parts);
  answer.hidden = false;
}

async function asked(path, request) {
  const reply = await fetch(path.slice(1), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  const said = await reply.json();
  if (!reply.ok) throw new Error(said.error);
  return said;
}

async function start() {
  const model = await (await fetch("model")).json();
  const form = FORMS[model.reads];
  document.title = model.name;
  byId("name").textContent = model.name;
  const labels = model.labels ?? model.tags ?? [];
  const listed = labels.slice(0, 12).join(", ") + (labels.length > 12 ? ", … (" + labels.length + " in all)" : "");
  byId("about").textContent = model.task + (listed ? ": " + listed : "");
  for (const [name, label, rows] of form.fields) {
    const field = element("label");
    const area = element("textarea");
    area.name = name;
    area.rows = rows;
    area.dir = "auto";
    field.append(element("span", label), area);
    byId("fields").append(field);
  }
  byId("fields").querySelector("textarea").focus();
  byId("why").hidden = model.path !== "/predict" || model.reads === "choices";
  byId("curl").textContent = "curl " + location.origin + model.path +
    " -H 'content-type: application/json' -d '" + JSON.stringify(form.example) + "'";
  byId("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = form.request(Object.fromEntries(new FormData(event.target)));
    if (event.submitter === byId("why")) request.explain = true;
    byId("ask").disabled = byId("why").disabled = true;
    try {
      show(SHOWN[model.path](await asked(model.path, request), request));
    } catch (error) {
      show([element("p", error.message)], true);
    } finally {
      byId("ask").disabled = byId("why").disabled = false;
    }
  });
  byId("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
  });
}

start().catch((error) => show([element("p", "The model cannot be asked: " + error.message)], true));
