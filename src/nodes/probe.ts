import type { JsonObject } from '../../attestation/json/value.ts'
import { type AskedProbe, BROKEN_OFF } from './asked-probe.ts'
import { chatFrame } from './chat-frame.ts'
import { DispatchError } from './dispatcher.ts'
import { probeImages } from './image-probe.ts'
import type { NodeLimits } from './limits.ts'
import { speedOf } from './measurements.ts'
import type { NodeConnection } from './node-connection.ts'
import type { Lane } from './node-index.ts'
import type { NodeRun } from './node-run.ts'
import type { ProbeOutcome } from './node-state.ts'
import { promptTokensMax } from './usage-claim.ts'

/** Probes nodes: asks them something short, and judges them by what the gateway measures. */
export type Prober = {
  /** Probes every node of these whose time has come, as far as there is room; the others' time stays. */
  probeDue(nodes: Iterable<NodeConnection>): void
  running(): number
  /** Ends the probes under way. */
  stop(): void
}

/** The question of a probe: an answer long enough to measure its speed. */
export function probeRequest(model: string): JsonObject {
  return {
    model,
    messages: [{ role: 'user', content: 'Count from one to thirty in words.' }],
    max_tokens: 64,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  }
}

/**
 * Probes with at most `probesMax` at once. A probe takes a slot like any run. A node cannot tell it from a call except by its
 * question, so a dishonest one may answer probes better than calls: calls are measured too.
 */
export function createProber(limits: NodeLimits): Prober {
  const abort = new AbortController()
  let running = 0

  async function probe(node: NodeConnection, lane: Lane): Promise<void> {
    const slot = node.slots.acquire()
    if (slot === null) return node.standing.probePutOff()
    node.standing.probeBegins()
    const asked = { lane, slot, signal: abort.signal, limits }
    const outcome = await (node.desk === null ? probeChat(asked) : probeImages(node.desk, asked))
    if (outcome === null) node.standing.probePutOff()
    else node.standing.probeEnds(outcome)
  }

  return {
    probeDue(nodes) {
      for (const node of nodes) {
        if (running >= limits.probesMax || abort.signal.aborted) return
        // One model stands for all: it is the machine that is judged.
        const [lane] = node.lanes
        if (lane === undefined || !node.standing.isProbeDue()) continue
        running++
        void probe(node, lane).finally(() => {
          running--
        })
      }
    },
    running: () => running,
    stop: () => abort.abort(new Error('the gateway stops')),
  }
}

function probeChat({ lane, slot, signal, limits }: AskedProbe): Promise<ProbeOutcome | null> {
  const request = probeRequest(lane.model)
  const { frameOf, bytes } = chatFrame(lane.model, request)
  const run = lane.node.start({
    lane,
    frameOf,
    requestBytes: bytes,
    promptTokensMax: promptTokensMax(request, bytes),
    choices: 1,
    slot,
    signal,
    reader: null,
    isProbe: true,
    accountId: null,
  })
  return outcomeOf(run, limits)
}

/** Null when the probe was broken off, and shows nothing: a node that goes is stored as it stood. */
async function outcomeOf(run: NodeRun, limits: NodeLimits): Promise<ProbeOutcome | null> {
  try {
    await run.firstToken
    for await (const _ of run.batches);
  } catch (error) {
    const isBrokenOff = !(error instanceof DispatchError) || BROKEN_OFF.has(error.code)
    return isBrokenOff ? null : 'failed'
  }
  const times = run.times()
  if (times === null) return 'failed'
  const speed = speedOf(times)
  const isSlow =
    times.firstTokenAtMs - times.startedAtMs > limits.probeFirstTokenMs ||
    (speed !== null && speed < limits.tokensPerSecondMin)
  return isSlow ? 'slow' : 'healthy'
}
