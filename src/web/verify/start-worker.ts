import type { Filled, FilledReply, Job, JobOutcome, JobReply, JobRequest } from './job.ts'
import { PolicyFault } from './policy-fault.ts'

/** Runs jobs in a worker, one at a time. */
export type Checker = {
  /**
   * `onProgress` gets the finished part. A new job ends the running job: the promise of the old job
   * rejects with AbortError.
   */
  run(job: Job, onProgress: (done: number) => void): Promise<JobOutcome>
  /** The promise of the running job rejects with AbortError. */
  stop(): void
}

/** The worker's script is loaded at once, because the network may be gone later. */
export function createChecker(): Checker {
  let end: (() => void) | null = null
  let idle: Worker | null = null
  let lastId = 0
  // If this load fails, the first job reports the fault.
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
 * Reads the file in a second worker, so that a running check continues. Rejects with
 * PolicyFault for a file that fills no fields.
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
    throw new PolicyFault(reply.message, reply.advice)
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
 * In a served page, the worker's text is a separate file, so that the page appears sooner. In a
 * saved page, this text is a part of the page.
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

/** Starts the worker from a blob. The page's policy allows no other workers. */
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

/** Some browsers need a URL from a trusted-types policy. This policy accepts only URLs of blobs. */
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
