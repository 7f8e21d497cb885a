import { FormatError } from '#attestation/errors.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { ProbeOutcome } from '../registry/node-state.ts'
import { type AnswerReader, askChat, type ChatRun } from '../runs/chat-run.ts'
import type { NodeConnection } from '../runs/connection.ts'
import { DispatchError } from '../runs/dispatch-error.ts'
import type { NodeLimits } from '../runs/limits.ts'
import type { NodeSlot, Offer } from '../runs/offer.ts'
import { tokensPerSecondOf } from '../runs/speed.ts'

/** Sends nodes short questions, and checks the answers by the gateway's own measurements. */
type Prober = {
  /** Starts due probes up to the limit. A later call starts the rest. */
  probeDue(nodes: Iterable<NodeConnection>): void
  running(): number
  stop(): void
}

/** The answer is long enough to measure the node's speed. */
function probeRequest(model: string): JsonObject {
  return {
    model,
    messages: [{ role: 'user', content: 'Count from one to thirty in words.' }],
    max_tokens: 64,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  }
}

export type ProbeOptions = {
  readonly limits: NodeLimits
  /** Checks that a node's answer, in base64, is one image. Otherwise rejects with FormatError. */
  readonly checkImage: (images: readonly string[]) => Promise<unknown>
  /** Opens a reader that checks a node's answer in the same way as an answer to a caller. */
  readonly judge?: (request: JsonObject) => AnswerReader
}

/**
 * Probes at most `probesMax` nodes at once. A probe takes a slot, like any other run. Callers' runs
 * are measured too, because a dishonest node may recognise a probe by its question, and answer only
 * probes well.
 */
export function createProber(options: ProbeOptions): Prober {
  const { limits } = options
  const abort = new AbortController()
  let running = 0

  async function probe(node: NodeConnection, offer: Offer<NodeConnection>): Promise<void> {
    const slot = node.slots.acquire()
    if (slot === null) return node.health.probePutOff()
    node.health.probeBegins(offer.model)
    const start = { offer, slot, signal: abort.signal, isProbe: true, accountId: null }
    const outcome = await (node.draws
      ? probeImages(node, start, options)
      : probeChat(node, start, options))
    if (outcome === null) node.health.probePutOff()
    else node.health.probeEnds(outcome)
  }

  return {
    probeDue(nodes) {
      for (const node of nodes) {
        if (running >= limits.probesMax || abort.signal.aborted) return
        const due = node.health.dueProbe()
        const offer = node.offers.find(({ model }) => model === due)
        if (offer === undefined) continue
        running++
        void probe(node, offer).finally(() => {
          running--
        })
      }
    },
    running: () => running,
    stop: () => abort.abort(new Error('the gateway stops')),
  }
}

type ProbeStart = {
  readonly offer: Offer<NodeConnection>
  readonly slot: NodeSlot
  readonly signal: AbortSignal
  readonly isProbe: boolean
  readonly accountId: null
}

function probeChat(
  node: NodeConnection,
  start: ProbeStart,
  { limits, judge }: ProbeOptions,
): Promise<ProbeOutcome | null> {
  const { model } = start.offer
  const request = probeRequest(model)
  const run = node.chat(askChat(model, request), {
    ...start,
    reader: judge?.(request) ?? null,
  })
  return outcomeOf(run, limits)
}

/**
 * Returns the outcome of a probe. Null when the probe was interrupted. The stored state of a node
 * that disconnects during its probe stays the same.
 */
async function outcomeOf(run: ChatRun, limits: NodeLimits): Promise<ProbeOutcome | null> {
  try {
    await run.firstToken
    for await (const _ of run.batches);
  } catch (error) {
    const isBrokenOff = !(error instanceof DispatchError) || BROKEN_OFF.has(error.code)
    return isBrokenOff ? null : 'failed'
  }
  const times = run.times()
  if (times === null) return 'failed'
  const speed = tokensPerSecondOf(times)
  const isSlow =
    times.firstTokenAtMs - times.startedAtMs > limits.probeFirstTokenMs ||
    (speed !== null && speed < limits.tokensPerSecondMin)
  return isSlow ? 'slow' : 'healthy'
}

/** Errors after which a probe has no result. `node_busy`: the node's backend was at its limit. */
const BROKEN_OFF: ReadonlySet<string> = new Set(['node_lost', 'node_busy', 'stopping'])

/**
 * An image probe asks for the smallest image that callers can ask for. The public client ignores
 * this size and draws in the size of its pipeline.
 */
const IMAGE_PROBE = {
  prompt: 'A red circle on white.',
  image: null,
  n: 1,
  size: '256x256',
} as const

/**
 * Probes a DIFFUSION node with one small image. Null when the probe was interrupted, or when no
 * memory was free for the answer. The answer must be an image, with any content.
 */
async function probeImages(
  node: NodeConnection,
  start: ProbeStart,
  { limits, checkImage }: ProbeOptions,
): Promise<ProbeOutcome | null> {
  const run = node.draw({ ...start, request: IMAGE_PROBE })
  if (run === null) return null
  try {
    const images = await run.answer
    const tookMs = run.options.now() - run.startedAtMs
    await checkImage(images)
    return tookMs > limits.probeImageMs ? 'slow' : 'healthy'
  } catch (error) {
    if (error instanceof DispatchError) return BROKEN_OFF.has(error.code) ? null : 'failed'
    return error instanceof FormatError ? 'failed' : null
  }
}
