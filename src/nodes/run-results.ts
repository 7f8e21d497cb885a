import { type JsonObject, memberOf } from '../../attestation/json/value.ts'
import type { DispatchError } from './dispatcher.ts'
import type { Inference } from './inferences-store.ts'
import { measurementAfter, measurementAfterSilence, TEXT_LENGTH_PER_TOKEN } from './measurements.ts'
import type { NodeConnection } from './node-connection.ts'
import type { NodeRun, RunResult } from './node-run.ts'

/** Draws the conclusions of a run: what was measured, and whether the node stands better or worse for it. */
export function concludeRun(
  node: NodeConnection,
  run: NodeRun,
  { result, nowMs }: { readonly result: RunResult; readonly nowMs: number },
): void {
  const { lane, isProbe } = run.options
  const times = run.times()
  if (result.kind !== 'done' && times === null)
    lane.measurement = measurementAfterSilence(lane.measurement, nowMs - run.startedAtMs)
  if (result.kind === 'done' && times !== null) lane.measurement = measurementAfter(lane.measurement, times)
  // Probes are judged by who asked.
  if (isProbe || result.kind === 'left') return
  if (result.kind === 'done') node.standing.succeeded()
  else if (mayBeRequestsFault(result.error)) node.standing.refused()
  else if (FAILURES.has(result.error.code)) node.standing.failed()
}

/**
 * Whether the request may be the cause of what the node told. A member that the node's library does
 * not know, or a tool that its backend cannot use, is a 500 as often as a 400; whether another node
 * could serve it shows nothing of this one. A probe will.
 */
export function mayBeRequestsFault({ code, status }: DispatchError): boolean {
  return code === 'node_refused' || (code === 'node_failed' && status !== null && !OWN_FAULTS.has(status))
}

/**
 * A backend that refuses its node's key, or does not have the model: no request of a caller does
 * that.
 */
const OWN_FAULTS: ReadonlySet<number> = new Set([401, 403, 404])

/** What speaks against a node. So does a lost connection, but once for all its runs: the connection notes it. */
const FAILURES: ReadonlySet<string> = new Set(['node_failed', 'first_token_timeout', 'token_timeout'])

/**
 * The row for a run that a node finished. Tokens are the node's claim within its bounds; without one they are estimated
 * from the sizes of request and answer. The time to the first token is this gateway's measurement.
 */
export function inferenceOf(node: NodeConnection, run: NodeRun, nowMs: number): Inference {
  const { options, usage, textLength, startedAtMs, id } = run
  const promptTokens = count(usage, 'prompt_tokens') ?? estimate(options.requestBytes)
  const completionTokens = count(usage, 'completion_tokens') ?? estimate(textLength)
  const times = run.times()
  return {
    id,
    nodeId: node.nodeId,
    accountId: options.accountId,
    model: options.lane.model,
    promptTokens,
    completionTokens,
    totalTokens: promptTokens + completionTokens,
    timeToFirstTokenMs: times === null ? null : Math.round(times.firstTokenAtMs - startedAtMs),
    createdAt: Math.floor(nowMs / 1000),
  }
}

function count(usage: JsonObject | null, name: string): number | null {
  const value = usage === null ? undefined : memberOf(usage, name)
  return typeof value === 'number' ? value : null
}

function estimate(length: number): number {
  return Math.ceil(length / TEXT_LENGTH_PER_TOKEN)
}
