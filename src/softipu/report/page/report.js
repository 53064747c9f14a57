// Puts the page of one report together.

async function showReport() {
  const report = await unpackData();
  const steps = new Steps(report);
  header(report);
  summarySection(report, steps);
  memorySection(report);
  livenessSection(report, steps);
  timelineSection(report, steps);
  pipelineSection(report);
  operatorsSection(report, steps);
  adviceSection(report);
  followSections();
  document.documentElement.dataset.ready = "true";
}

showReport().catch((error) => {
  byId("main").prepend(el("p", { class: "problem" }, `This page could not be shown: ${error.message}. It needs a browser of 2024 or later.`));
  throw error;
});
