import type { Fetch } from './gateway.ts'

/** The gateway ends an answer before this time, and states the reason. */
const ANSWER_TIMEOUT_MS = 70 * 60_000

/** Where Node.js keeps the dispatcher of its `fetch`. */
const GLOBAL_DISPATCHER = Symbol.for('undici.globalDispatcher.1')

/** Dispatchers of Node.js itself. A program's own dispatcher keeps its own limits. */
const OWN_DISPATCHERS: ReadonlySet<string> = new Set(['Agent', 'EnvHttpProxyAgent'])

type Dispatcher = object
type DispatcherClass = new (limits: { headersTimeout: number; bodyTimeout: number }) => Dispatcher

/**
 * Returns the platform's `fetch`. In Node.js, its limit of 5 minutes for the head of an answer, and
 * between two parts, becomes 70 minutes: a whole answer has no head before its end. A call that is
 * cut off has been made, and costs.
 */
export function patientFetch(): Fetch {
  let patient: { readonly of: Dispatcher; readonly dispatcher: Dispatcher } | null = null
  let first: Promise<unknown> | null = null
  return async (input, init) => {
    if ('process' in globalThis) {
      // Node.js makes its dispatcher for the first request.
      first ??= globalThis.fetch('data:,').catch(() => undefined)
      await first
    }
    const usual = globalDispatcher()
    if (usual === null) return globalThis.fetch(input, init)
    if (patient?.of !== usual) {
      const { constructor: Class } = usual as { readonly constructor: DispatcherClass }
      const limits = { headersTimeout: ANSWER_TIMEOUT_MS, bodyTimeout: ANSWER_TIMEOUT_MS }
      patient = { of: usual, dispatcher: new Class(limits) }
    }
    return globalThis.fetch(input, { ...init, dispatcher: patient.dispatcher } as RequestInit)
  }
}

function globalDispatcher(): Dispatcher | null {
  const usual = (globalThis as { readonly [name: symbol]: unknown })[GLOBAL_DISPATCHER]
  return typeof usual === 'object' && usual !== null && OWN_DISPATCHERS.has(usual.constructor.name)
    ? usual
    : null
}
