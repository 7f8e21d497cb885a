import { ExpectationFault } from './expectation-fault.ts'
import { fillHere } from './fill-here.ts'
import type { Asked, Told, ToldFilled } from './job.ts'
import { runJob } from './run-job.ts'

/*
 * Checks sources beside the page, so that it stays quick whatever they are. Its text is part of the
 * page's own script (start-worker.ts).
 */

/** What of a worker's scope is used: the types of pages do not have it. */
type Scope = {
  onmessage: ((event: MessageEvent<Asked>) => void) | null
  postMessage(message: Told | ToldFilled): void
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

async function fill(file: Blob): Promise<ToldFilled> {
  try {
    return { filled: await fillHere(file) }
  } catch (fault) {
    if (!(fault instanceof ExpectationFault)) throw fault
    return { message: fault.message, advice: fault.advice }
  }
}
