import { compareExchange, completeRecord } from '#attestation/compare-exchange.ts'
import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundleReport } from '#attestation/evidence/bundle-checks.ts'
import { namedBlocksOf } from '#attestation/evidence/check-provider.ts'
import type { BundlePolicy, ChainFacts } from '#attestation/evidence/policy.ts'
import { isRefused } from '#attestation/evidence/verdict.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { hasOwnMembersAlone, ownMembers } from '#attestation/own-members.ts'
import { writeSavedProof } from '#attestation/saved-proof.ts'
import { type AskedGateway, askGateway } from './ask-gateway.ts'
import { checkRpc, fetchChainFacts } from './chain-facts.ts'
import { AffidavitError, withErrorCode } from './errors.ts'
import { delay } from './gateway.ts'
import type { Proof } from './proof.ts'

/** Options for the wait for an anchor and for the check of its block. */
export type AnchoredOptions = {
  /**
   * URL of a JSON-RPC endpoint of the chain. You must trust its operator: the answers are not
   * proved.
   */
  readonly rpc?: string
  /**
   * Minimum number of confirmations. 1: the anchor's block may be the newest block. Used only with
   * `rpc`. Default 1.
   */
  readonly confirmations?: number
  /** Default 120,000 ms. */
  readonly timeoutMs?: number
  /** API key for the requests to the gateway. Default: the key given to `connect`. */
  readonly apiKey?: string
  readonly signal?: AbortSignal
}

export type KeptProof = Pick<Proof, 'hash' | 'request' | 'answer'> &
  Partial<Pick<Proof, 'unanswered'>>

/** The evidence of a call whose anchor is in a block. */
export type AnchoredEvidence = {
  readonly bundle: EvidenceBundle
  /**
   * The bundle as the gateway sent it: a file for `affidavit verify`. The client adds the request
   * and the answer of an encrypted call.
   */
  readonly text: string
  /**
   * Returns a file for `affidavit verify` with request, answer and bundle. It can be verified
   * without the gateway.
   */
  save(): string
  /**
   * The result, with every check. Without `rpc`, `block on chain` is not checked, and not needed
   * for `verified`. For an encrypted stream without requested usage, the result is `incomplete` at
   * best, because the signed usage is missing. The stream hash still covers the chunks.
   */
  readonly report: BundleReport
}

const TIMEOUT_MS_DEFAULT = 120_000
/** Bytes. Evidence contains the request and the answer. */
const EVIDENCE_BYTES_MAX = 64 * 1024 * 1024
const POLL_MS_MIN = 250
const POLL_MS_MAX = 5_000

/**
 * Waits until a block has the anchor of a call. Returns the evidence bundle after checking that it
 * belongs to this call. With `rpc`, also checks that the chain has the block. If `options` is a
 * string, it is the `rpc`. Throws AffidavitError `invalid_options`, `other_evidence`,
 * `invalid_evidence`, and the errors of askGateway. When the time limit ends, throws
 * `not_anchored`, or `unreachable` if the chain's endpoint did not answer the last poll.
 */
export async function awaitAnchor(
  proof: KeptProof,
  parts: {
    readonly gateway: AskedGateway
    /** Called after the evidence arrived: the policy may change during the wait. */
    readonly policy: () => BundlePolicy
    readonly options: AnchoredOptions | string
  },
): Promise<AnchoredEvidence> {
  const { policy } = parts
  const { timeoutMs, confirmations, rpc, signal, apiKey } = readOptions(parts.options)
  const gateway = apiKey === undefined ? parts.gateway : { ...parts.gateway, apiKey }
  const endMs = performance.now() + timeoutMs
  const path = `/v1/verified/chat/completions/${proof.hash}/evidence`
  for (let pauseMs = POLL_MS_MIN; ; pauseMs = Math.min(2 * pauseMs, POLL_MS_MAX)) {
    const { json, text: asGiven } = await askGateway(gateway, path, {
      withKey: true,
      bytesMax: EVIDENCE_BYTES_MAX,
      ...(signal === undefined ? {} : { signal }),
    })
    const given = withErrorCode('invalid_evidence', () => parseEvidenceBundle(json))
    checkSameExchange(given, proof)
    const { bundle, text } = completeBundle({ json, text: asGiven, bundle: given }, proof)
    let unread: AffidavitError | null = null
    const { block } = bundle
    if (block !== null) {
      const chain =
        rpc === undefined
          ? null
          : await fetchChainFacts(gateway, rpc, await namedBlocksOf(bundle)).catch(
              returnUnreachable,
            )
      if (chain instanceof AffidavitError) unread = chain
      else if (chain === null || isDeepEnough(chain, block, confirmations)) {
        const report = await verifyBundle(
          { ...bundle },
          { ...policy(), confirmationsMin: confirmations },
          chain === null ? {} : { chain },
        )
        refuseInvalid(report)
        const { request, answer, unanswered = [] } = proof
        const kept = { request, answer, unanswered, bundle: json as JsonObject }
        const save = () => writeSavedProof(kept)
        return { bundle, text, report, save }
      }
    }
    if (performance.now() + pauseMs > endMs)
      throw (
        unread ??
        new AffidavitError(
          'not_anchored',
          `expected a block with the anchor of ${proof.hash} within ${timeoutMs} ms: ${sayWhyNot(bundle)}`,
        )
      )
    await delay(pauseMs, signal)
  }
}

/** The endpoint may answer at the next poll: public endpoints limit the rate of requests. */
function returnUnreachable(fault: unknown): AffidavitError {
  if (fault instanceof AffidavitError && fault.code === 'unreachable') return fault
  throw fault
}

/** False also if another block replaced this block. A later block may then contain the anchor. */
function isDeepEnough(
  { newestBlock, blockHash }: ChainFacts,
  block: { readonly number: number; readonly hash: string },
  confirmations: number,
): boolean {
  return blockHash === block.hash && newestBlock - block.number + 1 >= confirmations
}

/** Refuses unknown options, because a misspelt `confirmations` or `rpc` would be ignored. */
function readOptions(given: AnchoredOptions | string) {
  const asked = typeof given === 'string' ? { rpc: given } : given
  if (!hasOwnMembersAlone(asked)) throw invalid('expected options to be an object')
  const unknown = Object.keys(asked).find((name) => !OPTIONS.has(name))
  if (unknown !== undefined)
    throw invalid(`expected options without ${unknown}: there are ${[...OPTIONS].join(', ')}`)
  const {
    timeoutMs = TIMEOUT_MS_DEFAULT,
    confirmations = 1,
    rpc,
    signal,
    apiKey,
  } = ownMembers(asked)
  if (!(typeof timeoutMs === 'number' && timeoutMs >= 0))
    throw invalid('expected timeoutMs to be 0 or more milliseconds')
  if (!(Number.isSafeInteger(confirmations) && confirmations > 0))
    throw invalid('expected confirmations to be a whole number from 1')
  checkRpc(rpc)
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw invalid('expected signal to be an AbortSignal')
  if (apiKey !== undefined && typeof apiKey !== 'string')
    throw invalid('expected apiKey to be text')
  return { timeoutMs, confirmations, rpc, signal, apiKey }
}

const OPTIONS: ReadonlySet<string> = new Set<keyof AnchoredOptions>([
  'rpc',
  'confirmations',
  'timeoutMs',
  'signal',
  'apiKey',
])

function invalid(message: string): AffidavitError {
  return new AffidavitError('invalid_options', message)
}

function checkSameExchange({ record }: EvidenceBundle, { request, answer }: KeptProof): void {
  const differing = compareExchange(record, { request, answer }).find(
    ({ outcome }) => outcome !== 'passed',
  )
  if (differing !== undefined)
    throw new AffidavitError('other_evidence', `${differing.name}: ${differing.detail}`)
}

/**
 * Adds the request and the answer to the evidence of an encrypted call, which has only their
 * hashes.
 */
function completeBundle(
  given: { readonly json: Json; readonly text: string; readonly bundle: EvidenceBundle },
  { request, answer }: KeptProof,
): { readonly bundle: EvidenceBundle; readonly text: string } {
  const { json, bundle } = given
  const { record } = bundle
  if (!isJsonObject(json) || ('request' in record && 'response' in record)) return given
  const completed = { ...json, record: completeRecord({ ...record }, { request, answer }) }
  return { bundle: parseEvidenceBundle(completed), text: `${canonicalizeJson(completed)}\n` }
}

function sayWhyNot(bundle: EvidenceBundle): string {
  return bundle.block === null
    ? sayNoBlock(bundle)
    : `the endpoint does not have block ${bundle.block.number}, ${bundle.block.hash}, or the ` +
        'block is not deep enough'
}

function refuseInvalid({ verdict, checks }: BundleReport): void {
  if (!isRefused(verdict)) return
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  throw new AffidavitError('invalid_evidence', `${failed?.name}: ${failed?.detail}`)
}
