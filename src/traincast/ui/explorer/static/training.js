// What is trained, as controls: a method, and rank and layers of its adapters. The question holds it as the text of
// the option `--train`, such as `dpo+lora:r=16,targets=q+v`.

/** Methods in groups: a method as `--train` has it, and its words. */
export const METHODS = [
  ["All weights", [["", "Pretraining"], ["sft", "SFT, supervised fine-tuning"], ["dpo", "DPO, from preferences"]]],
  ["Adapters", [["lora", "SFT with LoRA"], ["dpo+lora", "DPO with LoRA"]]],
  ["Adapters, the model in 4 bits", [["qlora", "SFT with QLoRA"], ["dpo+qlora", "DPO with QLoRA"]]],
];
const SAME = { full: "", "sft+full": "sft", "dpo+full": "dpo", "sft+lora": "lora", "sft+qlora": "qlora" };
const RANK = ["r", "rank"]; // names of that setting

/** Whether a method trains adapters. */
export const hasAdapters = (method) => method.endsWith("lora");

/** The controls of a text; `more` are the settings that have none, such as `base=int8`. */
export function read(text) {
  const [said, settings = ""] = (text ?? "").split(/:(.*)/s);
  const pairs = settings.split(",").filter(Boolean).map((setting) => [setting.split("=")[0].trim(), setting]);
  const value = (...names) => pairs.find(([name]) => names.includes(name))?.[1].split("=")[1] ?? "";
  const more = pairs.filter(([name]) => ![...RANK, "targets"].includes(name)).map(([, setting]) => setting);
  return { method: SAME[said] ?? said, rank: value(...RANK), targets: value("targets"), more };
}

/** The text of controls; null for pretraining. Only adapters have settings. */
export function write({ method, rank, targets, more }) {
  if (!hasAdapters(method)) return method || null;
  const settings = [rank && `r=${rank}`, targets && `targets=${targets.replaceAll(" ", "")}`, ...more];
  const said = settings.filter(Boolean).join(",");
  return said ? `${method}:${said}` : method;
}
