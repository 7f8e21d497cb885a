import { compareExchange, completeRecord } from '../attestation/compare-exchange.ts'
import { sayNoBlock } from '../attestation/evidence/anchor-checks.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../attestation/evidence/bundle.ts'
import type { BundleReport } from '../attestation/evidence/bundle-report.ts'
import type { BundlePolicy } from '../attestation/evidence/policy.ts'
import { verifyBundle } from '../attestation/evidence/verify-bundle.ts'
import { canonicalizeJson } from '../attestation/json/canonical.ts'
import { isJsonObject, type Json, type JsonObject } from '../attestation/json/value.ts'
import { hasOwnMembersAlone, ownMembers } from '../attestation/own-members.ts'
import { writeSavedProof } from '../attestation/saved-proof.ts'
import { type AskedGateway, askGateway } from './ask-gateway.ts'
import { fetchChainFacts } from './chain-facts.ts'
import { AffidavitError, withErrorCode } from './errors.ts'
import { delay } from './gateway.ts'
import type { Proof } from './proof.ts'

/** How long to wait for an anchor, and whom to ask about its block. */
export type AnchoredOptions = {
  /** URL of a JSON-RPC endpoint of the chain: as far to trust as its operator. */
  readonly rpc?: string
  /** How deep the block must be, itself included; with `rpc`. Default 1. */
  readonly confirmations?: number
  /** Default 120,000 ms. */
  readonly timeoutMs?: number
  /** Key to ask the gateway with, in place of that of `connect`. */
  readonly apiKey?: string
  readonly signal?: AbortSignal
}

/** The evidence of a call whose anchor is in a block. */
export type AnchoredEvidence = {
  readonly bundle: EvidenceBundle
  /**
   * The text of a file that `affidavit verify` takes: the bundle as the gateway gave it. The
   * gateway cannot read an encrypted call: that bundle is completed from the proof.
   */
  readonly text: string
  /**
   * The text of one file with request, answer and bundle, which `affidavit verify` takes: it needs
   * no gateway any longer.
   */
  save(): string
  /**
   * `verified`, or `consistent` without `rpc`, and of an encrypted stream whose usage was not asked
   * for: its chunks lack what the signed response has, and are bound by the stream hash that the
   * proof's own checks compared. With every check.
   */
  readonly report: BundleReport
}

const TIMEOUT_MS_DEFAULT = 120_000
/** Evidence holds the request and the answer. */
const EVIDENCE_BYTES_MAX = 64 * 1024 * 1024
const POLL_MS_MIN = 250
const POLL_MS_MAX = 5_000

/**
 * Waits until a block has the anchor of a call, and gives its evidence bundle, checked: of this
 * call, and with `rpc` that the block is on the chain. `options`: text is the `rpc` of them. Throws
 * AffidavitError `invalid_options`, `not_anchored` when it takes too long, `other_evidence`,
 * `invalid_evidence`, and as askGateway.
 */
export async function awaitAnchor(
  proof: Proof,
  parts: {
    readonly gateway: AskedGateway
    /** Asked when the evidence is there: what is expected may have changed while it came. */
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
    checkSame(given, proof)
    const { bundle, text } = completeBundle({ json, text: asGiven, bundle: given }, proof)
    if (bundle.block !== null) {
      const chain =
        rpc === undefined ? null : await fetchChainFacts(gateway, rpc, bundle.block.number)
      const isDeep = chain === null || chain.newestBlock - bundle.block.number + 1 >= confirmations
      // A block that another one replaced may come again, in another.
      const isThere = chain === null || chain.blockHash === bundle.block.hash
      if (isDeep && isThere) {
        const report = await verifyBundle(
          { ...bundle },
          { ...policy(), confirmationsMin: confirmations },
          chain === null ? {} : { chain },
        )
        refuseInvalid(report)
        const { request, answer } = proof
        const save = () => writeSavedProof({ request, answer, bundle: json as JsonObject })
        return { bundle, text, report, save }
      }
    }
    if (performance.now() + pauseMs > endMs)
      throw new AffidavitError(
        'not_anchored',
        `expected a block with the anchor of ${proof.hash} within ${timeoutMs} ms: ${sayWhyNot(bundle)}`,
      )
    await delay(pauseMs, signal)
  }
}

/** A misspelt `confirmations` would count as 1, and a misspelt `rpc` as none. */
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
  if (rpc !== undefined && !(typeof rpc === 'string' && URL.canParse(rpc)))
    throw invalid('expected rpc to be a URL')
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

/** The bundle is of the call that was made: its request, its answer, its receipt. */
function checkSame({ record }: EvidenceBundle, { request, answer }: Proof): void {
  const differing = compareExchange(record, { request, answer }).find(
    ({ outcome }) => outcome !== 'passed',
  )
  if (differing !== undefined)
    throw new AffidavitError('other_evidence', `${differing.name}: ${differing.detail}`)
}

/** An encrypted call's evidence has hashes alone; its caller kept what they are of. */
function completeBundle(
  given: { readonly json: Json; readonly text: string; readonly bundle: EvidenceBundle },
  { request, answer }: Proof,
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
    : `the endpoint does not have block ${bundle.block.number}, ${bundle.block.hash}, or the block is not deep enough`
}

function refuseInvalid({ verdict, checks }: BundleReport): void {
  if (verdict !== 'invalid') return
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  throw new AffidavitError('invalid_evidence', `${failed?.name}: ${failed?.detail}`)
}
