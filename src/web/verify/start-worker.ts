import { ExpectationFault } from './expectation-fault.ts'
import type { Asked, Filled, Job, Outcome, Told, ToldFilled } from './job.ts'

/** Runs jobs beside the page, one at a time. */
export type Checker = {
  /**
   * Gives what comes of a job; `tell` is called with how much is done. A job that is asked for
   * while another runs ends that one, whose promise rejects with AbortError.
   */
  run(job: Job, tell: (done: number) => void): Promise<Outcome>
  /** Ends the job that runs, whose promise rejects with AbortError. */
  stop(): void
}

/** Gives a checker. What its worker runs is loaded at once: the network may go. */
export function createChecker(): Checker {
  let end: (() => void) | null = null
  let idle: Worker | null = null
  let lastId = 0
  // A fault of this is told by the first job.
  void loadText().catch(() => undefined)

  return {
    stop() {
      lastId += 1
      end?.()
    },
    async run(job, tell) {
      end?.()
      const id = ++lastId
      const worker = idle ?? (await startWorker())
      idle = null
      if (id !== lastId) {
        worker.terminate()
        throw aborted()
      }
      return await new Promise<Outcome>((resolve, reject) => {
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
        worker.onmessage = ({ data }: MessageEvent<Told>) => {
          if (data.id !== id) return
          if ('done' in data) return tell(data.done)
          release()
          idle = worker
          resolve(data.outcome)
        }
        worker.onerror = ({ message }) => {
          give(startFault(message))
        }
        const asked: Asked = { id, job }
        worker.postMessage(asked)
      })
    },
  }
}

/**
 * Gives what a file puts into the fields of a form, read by a worker of its own: a check that runs
 * goes on. Rejects with ExpectationFault for a file that fills none.
 */
export async function fillInWorker(file: Blob): Promise<Filled> {
  const worker = await startWorker()
  try {
    const told = await new Promise<ToldFilled>((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<ToldFilled>) => resolve(data)
      worker.onerror = ({ message }) => reject(startFault(message))
      const asked: Asked = { fill: file }
      worker.postMessage(asked)
    })
    if ('filled' in told) return told.filled
    throw new ExpectationFault(told.message, told.advice)
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

/** Served, it is a script of its own, so that the page shows sooner; saved, it is in the page. */
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
 * The worker starts from its text in a blob, be the page served or saved. The page's policy lets
 * workers come of such texts alone.
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

/** Where browsers ask for it, the URL as one that this policy made; it takes blobs alone. */
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
