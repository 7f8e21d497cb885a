import type { Asked, Told } from './job.ts'
import { runJob } from './run-job.ts'

/*
 * Checks sources beside the page, so that it stays quick whatever they are. Its text is part of the
 * page's own script (start-worker.ts).
 */

/** What of a worker's scope is used: the types of pages do not have it. */
type Scope = {
  onmessage: ((event: MessageEvent<Asked>) => void) | null
  postMessage(message: Told): void
}

const scope = globalThis as unknown as Scope

scope.onmessage = async ({ data: { id, job } }) => {
  const outcome = await runJob(job, (done) => scope.postMessage({ id, done }))
  scope.postMessage({ id, outcome })
}
