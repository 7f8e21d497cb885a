import { ExpectationFault } from './expectation-fault.ts'
import type { Filled, FilledReply, Job, JobOutcome, JobReply, JobRequest } from './job.ts'

/** Runs jobs beside the page, one at a time. */
export type Checker = {
  /**
   * Gives the result of a job; `onProgress` is called with the done part. A new job ends the
   * running one, whose promise rejects with AbortError.
   */
  run(job: Job, onProgress: (done: number) => void): Promise<JobOutcome>
  /** Ends the running job, whose promise rejects with AbortError. */
  stop(): void
}

/** Gives a checker. The worker's script is loaded at once: the network may be gone later. */
export function createChecker(): Checker {
  let end: (() => void) | null = null
  let idle: Worker | null = null
  let lastId = 0
  // The first job reports a fault of this load.
  void loadText().catch(() => undefined)

  return {
    stop() {
      lastId += 1
      end?.()
    },
    async run(job, onProgress) {
      end?.()
      const id = ++lastId
      const worker = idle ?? (await startWorker())
      idle = null
      if (id !== lastId) {
        worker.terminate()
        throw aborted()
      }
      return await new Promise<JobOutcome>((resolve, reject) => {
        const release = () => {
          worker.onmessage = null
          worker.onerror = null
          end = null
        }
        const give = (fault: Error) => {
          release()
          worker.terminate()
          reject(fault)
        }
        end = () => give(aborted())
        worker.onmessage = ({ data }: MessageEvent<JobReply>) => {
          if (data.id !== id) return
          if ('done' in data) return onProgress(data.done)
          release()
          idle = worker
          resolve(data.outcome)
        }
        worker.onerror = ({ message }) => {
          give(startFault(message))
        }
        const asked: JobRequest = { id, job }
        worker.postMessage(asked)
      })
    },
  }
}

/**
 * Gives the fields of a form that a file fills. A second worker reads the file, so that a running
 * check goes on. Rejects with ExpectationFault for a file that fills no field.
 */
export async function fillInWorker(file: Blob): Promise<Filled> {
  const worker = await startWorker()
  try {
    const reply = await new Promise<FilledReply>((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<FilledReply>) => resolve(data)
      worker.onerror = ({ message }) => reject(startFault(message))
      const asked: JobRequest = { fill: file }
      worker.postMessage(asked)
    })
    if ('filled' in reply) return reply.filled
    throw new ExpectationFault(reply.message, reply.advice)
  } finally {
    worker.terminate()
  }
}

function startFault(message: string): Error {
  return new Error(message || 'the worker that checks did not start')
}

function aborted(): DOMException {
  return new DOMException('another check was asked for', 'AbortError')
}

let text: Promise<string> | null = null

/**
 * A served page loads it as a separate script, so that it shows sooner; a saved page contains it.
 */
function loadText(): Promise<string> {
  text ??= import('./worker.ts?text').then(
    (module) => module.default,
    (fault: unknown) => {
      text = null
      throw fault
    },
  )
  return text
}

/**
 * The worker starts from its text in a blob, in a served page and in a saved one. The page's policy
 * allows workers from such blobs alone.
 */
async function startWorker(): Promise<Worker> {
  const url = URL.createObjectURL(new Blob([await loadText()], { type: 'text/javascript' }))
  return new Worker(trusted(url), { name: 'affidavit-verify' })
}

type TrustedTypes = {
  createPolicy(
    name: string,
    rules: { readonly createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): string }
}

let policy: ReturnType<TrustedTypes['createPolicy']> | null = null

/**
 * The URL, marked by this page's policy for browsers that ask for that. The policy accepts blobs
 * alone.
 */
function trusted(url: string): string {
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes }
  if (trustedTypes === undefined) return url
  policy ??= trustedTypes.createPolicy('verify-worker', {
    createScriptURL: (given) => {
      if (!given.startsWith('blob:')) throw new TypeError('expected a blob')
      return given
    },
  })
  return policy.createScriptURL(url)
}
