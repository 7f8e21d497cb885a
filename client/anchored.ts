import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundleReport } from '#attestation/evidence/bundle-checks.ts'
import { namedBlocksOf } from '#attestation/evidence/check-provider.ts'
import { completeEvidence, writeEvidence } from '#attestation/evidence/create-evidence.ts'
import type { BundlePolicy, ChainFacts } from '#attestation/evidence/policy.ts'
import { isRefused } from '#attestation/evidence/verdict.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { hasOwnMembersAlone, ownMembers } from '#attestation/own-members.ts'
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

/** A proof, or the evidence that it saved. */
export type KeptProof = Pick<Proof, 'evidence'>

/** The evidence of a call whose anchor is in a block. */
export type AnchoredEvidence = {
  readonly evidence: EvidenceBundle
  /**
   * Returns the evidence as one line: a file for `affidavit verify`, with the request and the
   * answer. It can be verified without the gateway.
   */
  save(): string
  /**
   * The result, with every check. Without `rpc`, `block on chain` is not checked, and not needed
   * for `verified`.
   */
  readonly report: BundleReport
}

const TIMEOUT_MS_DEFAULT = 120_000
/** Bytes. Evidence contains the request and the answer. */
const EVIDENCE_BYTES_MAX = 64 * 1024 * 1024
const POLL_MS_MIN = 250
const POLL_MS_MAX = 5_000

/**
 * Waits until a block has the anchor of a call. Returns the evidence after checking that it belongs
 * to this call. With `rpc`, also checks that the chain has the block. If `options` is a
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
  const { hash } = proof.evidence.record
  const path = `/v1/verified/chat/completions/${hash}/evidence`
  for (let pauseMs = POLL_MS_MIN; ; pauseMs = Math.min(2 * pauseMs, POLL_MS_MAX)) {
    const { json } = await askGateway(gateway, path, {
      withKey: true,
      bytesMax: EVIDENCE_BYTES_MAX,
      ...(signal === undefined ? {} : { signal }),
    })
    const given = withErrorCode('invalid_evidence', () => parseEvidenceBundle(json))
    const evidence = withErrorCode('other_evidence', () => completeEvidence(proof.evidence, given))
    let unread: AffidavitError | null = null
    const { block } = evidence
    if (block !== null) {
      const chain =
        rpc === undefined
          ? null
          : await fetchChainFacts(gateway, rpc, await namedBlocksOf(evidence)).catch(
              returnUnreachable,
            )
      if (chain instanceof AffidavitError) unread = chain
      else if (chain === null || isDeepEnough(chain, block, confirmations)) {
        const report = await verifyBundle(
          { ...evidence },
          { ...policy(), confirmationsMin: confirmations },
          chain === null ? {} : { chain },
        )
        refuseInvalid(report)
        return { evidence, report, save: () => writeEvidence(evidence) }
      }
    }
    if (performance.now() + pauseMs > endMs)
      throw (
        unread ??
        new AffidavitError(
          'not_anchored',
          `expected a block with the anchor of ${hash} within ${timeoutMs} ms: ${sayWhyNot(evidence)}`,
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
