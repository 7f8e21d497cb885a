import { fillHere } from './fill-here.ts'
import type { FilledReply, JobReply, JobRequest } from './job.ts'
import { PolicyFault } from './policy-fault.ts'
import { runJob } from './run-job.ts'

/*
 * A worker keeps the page responsive during checks. A served page loads the worker's text
 * (start-worker.ts). In a saved page, page and worker run the same script.
 */

/** The types for pages lack these members of a worker's global scope. */
type Scope = {
  onmessage: ((event: MessageEvent<JobRequest>) => void) | null
  postMessage(message: JobReply | FilledReply): void
}

const scope = globalThis as unknown as Scope

scope.onmessage = async ({ data }) => {
  if ('fill' in data) {
    scope.postMessage(await fill(data.fill))
    return
  }
  const { id, job } = data
  const outcome = await runJob(job, (done) => scope.postMessage({ id, done }))
  scope.postMessage({ id, outcome })
}

/** Never rejects, because a rejection here does not reach the page, which would wait. */
async function fill(file: Blob): Promise<FilledReply> {
  try {
    return { filled: await fillHere(file) }
  } catch (fault) {
    if (fault instanceof PolicyFault) return { message: fault.message, advice: fault.advice }
    return {
      message: `The file cannot be read: ${fault instanceof Error ? fault.message : String(fault)}`,
      advice: 'Choose the file again: it may have changed on the disk.',
    }
  }
}
