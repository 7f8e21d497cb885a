import { encodeHex, equalBytes, sha256 } from '../../bytes.ts'
import { isCount } from '../../json/value.ts'
import { demand, judgedAt } from '../policy-options.ts'
import {
  blockedBy,
  createProviderChecks,
  type Established,
  established,
  type NotMade,
  notGiven,
  type ProviderCheck,
  type ProviderChecks,
  waived,
} from '../provider-checks.ts'
import { EVIDENCE_CHECKS, type EvidenceCheckName, refuseEvidence } from './evidence-codes.ts'
import {
  type LookedUpBlock,
  type NonceBlock,
  type ProviderEvidence,
  type ProviderKind,
  parseProviderEvidence,
  providerNonce,
} from './evidence-document.ts'
import { judgeAci } from './judge-aci.ts'
import { judgeDstack } from './judge-dstack.ts'
import { judgeNitro } from './judge-nitro.ts'
import { judgeTinfoil } from './judge-tinfoil.ts'
import {
  findOpen,
  type Judging,
  type KindFacts,
  NO_KIND_FACTS,
  type ProviderTerms,
} from './judging.ts'
import { isParsedPolicy } from './mark-parsed.ts'
import { NO_PROVIDER_POLICY, type ProviderPolicy } from './provider-policy.ts'

export type ProviderFacts = KindFacts & {
  /** SHA-256 of the evidence, hex. */
  readonly digest: string
  readonly kind: ProviderKind
  readonly origin: string
  /** Unix milliseconds, as the collecting gateway states. */
  readonly fetchedAtMs: number
  /**
   * The hardware signed a nonce that is made of the hash of this block. Null unless the check
   * "block nonce" passed. Only the collector states chain and number if `blockTimeMs` is null.
   */
  readonly block: NonceBlock | null
  /** The evidence is not older. Unix milliseconds. Null unless the block was looked up. */
  readonly blockTimeMs: number | null
  /** True if the policy replaces built-in roots. Such evidence is for development. */
  readonly hasReplacedRoots: boolean
}

/** `facts` is null if the bytes are not evidence. */
export type ProviderJudgement = {
  readonly facts: ProviderFacts | null
  readonly checks: readonly ProviderCheck[]
}

/** The latest time of a Date, Unix milliseconds. */
const DATE_MS_MAX = 8.64e15
/**
 * The time of the block, or of fetching, can be this much later than the judgement, because clocks
 * differ.
 */
const CLOCK_SKEW_MS = 300_000

/**
 * Judges attacker-controlled evidence of a provider under `policy` at the time `at`, by formats.md.
 * The checks are those of EVIDENCE_CHECKS, and checks of the parts, such as `TDX: PCK chain`.
 * Accept the evidence only if `requireChecks(checks)` returns. If the policy is null, the facts say
 * what the hardware shows, but `requireChecks` throws. `lookedUp` is the block of
 * `parseProviderEvidence(bytes).block` on a chain. Without it, or on another chain, the check "age"
 * is not made, because only the collector states a time.
 *
 * It proves that hardware of this kind ran this code, and that the code stated these TLS keys. It
 * does NOT prove that the answer came over one of these keys: compare `tlsKeys` with the receipt.
 * It does NOT prove that the code is good, or who operates the machine. Throws only PolicyError,
 * for a fault in the call.
 *
 * @example
 * const { facts, checks } = await verifyProviderEvidence(bytes, policy, new Date(finishedAt))
 * requireChecks(checks)
 * console.log(facts?.tlsKeys, facts?.model.weights) // [{ spkiSha256: '71c3…' }] hardware_proven
 */
export async function verifyProviderEvidence(
  bytes: Uint8Array,
  policy: ProviderPolicy | null,
  at: Date,
  lookedUp: LookedUpBlock | null = null,
): Promise<ProviderJudgement> {
  const atMs = judgedAt(at)
  demand(lookedUp === null || isLookedUp(lookedUp), 'a block of chainId, hash and timestamp')
  demand(bytes instanceof Uint8Array, 'the evidence as Uint8Array')
  const isParsed = policy === null || isParsedPolicy(policy)
  demand(isParsed, 'a policy of parseProviderPolicy, or null')
  const terms = policy ?? { ...NO_PROVIDER_POLICY, code: null }
  const checks = createProviderChecks(EVIDENCE_CHECKS)
  const { make } = checks
  const digest = encodeHex(sha256(bytes))
  const evidence = await make('evidence document', () =>
    established(parseProviderEvidence(bytes), `SHA-256 ${digest}`),
  )
  const isAccepted = await make('provider', () =>
    evidence ? checkProvider(evidence, policy) : blockedBy('evidence document'),
  )
  const parts: ProviderCheck[] = []
  const isJudged = evidence !== null && (isAccepted !== null || policy === null)
  const facts = isJudged
    ? await JUDGES[evidence.kind]({
        evidence,
        terms,
        checks,
        at,
        add: (part, more) => {
          for (const one of more) parts.push({ ...one, name: `${part}: ${one.name}` })
        },
      })
    : await leaveOpen(checks)
  const found = await make('block nonce', () =>
    evidence
      ? checkBlock(evidence, { ...terms, lookedUp, checks: checks.list() })
      : blockedBy('evidence document'),
  )
  const blockTimeMs = found?.timeMs ?? null
  await make('age', () =>
    evidence ? checkAge(evidence, { ...terms, atMs, blockTimeMs }) : blockedBy('evidence document'),
  )
  const all = [...checks.list(), ...parts]
  if (evidence === null) return { facts: null, checks: all }
  const { kind, origin, fetchedAtMs } = evidence
  const hasReplacedRoots = terms.roots.isReplaced
  return {
    facts: {
      ...facts,
      digest,
      kind,
      origin,
      fetchedAtMs,
      block: found?.block ?? null,
      blockTimeMs,
      hasReplacedRoots,
    },
    checks: all,
  }
}

const JUDGES: Readonly<Record<ProviderKind, (judging: Judging) => Promise<KindFacts>>> = {
  tinfoil: judgeTinfoil,
  dstack: judgeDstack,
  aci: judgeAci,
  nitro: judgeNitro,
}

/** Records each check in KIND_CHECKS as not made, because the check "provider" did not pass. */
async function leaveOpen({ make }: ProviderChecks<EvidenceCheckName>): Promise<KindFacts> {
  for (const name of KIND_CHECKS) await make(name, () => blockedBy('provider'))
  return NO_KIND_FACTS
}

const KIND_CHECKS = [
  'answer',
  'challenge',
  'collateral',
  'hardware',
  'key binding',
  'code',
  'GPU',
  'weights',
] as const satisfies readonly EvidenceCheckName[]

function checkProvider({ kind, origin }: ProviderEvidence, policy: ProviderPolicy | null) {
  if (policy === null) return notGiven('a policy was')
  if (kind !== policy.kind)
    throw refuseEvidence('provider_kind', `expected evidence of kind ${policy.kind}, got ${kind}`)
  if (!policy.origins.includes(origin))
    throw refuseEvidence('provider_origin', `expected an origin of the policy, got ${origin}`)
  return established(true, `${kind} at ${origin}`)
}

/** `timeMs` is null if the block was not looked up. */
type NonceFacts = { readonly block: NonceBlock; readonly timeMs: number | null }

/**
 * Depends on "challenge" and on "key binding", because a nonce shows an age only if the hardware
 * signed it. The nonce in version 3 of Tinfoil's document is signed only with its keys.
 */
function checkBlock(
  { nonce, origin, block }: ProviderEvidence,
  {
    needsBlock,
    lookedUp,
    checks,
  }: Pick<ProviderTerms, 'needsBlock'> & {
    readonly lookedUp: LookedUpBlock | null
    readonly checks: readonly ProviderCheck<EvidenceCheckName>[]
  },
): Established<NonceFacts> | NotMade {
  if (block === null && needsBlock)
    throw refuseEvidence('block_missing', 'expected a nonce that is made of a block')
  if (block === null) return waived('the nonce is random: only the collector knows that it is new')
  if (!equalBytes(nonce, providerNonce(block.hash, origin)))
    throw refuseEvidence('block_nonce_mismatch', 'expected the SHA-256 of block hash and origin')
  const hasNoNonce = checks.some(({ name, isWaived }) => name === 'challenge' && isWaived)
  if (hasNoNonce && needsBlock)
    throw refuseEvidence('block_missing', 'expected an answer that has the nonce')
  if (hasNoNonce) return waived('the answer does not have the nonce: no block shows its age')
  const open = findOpen(checks, ['challenge', 'key binding'])
  if (open) return blockedBy(open.name)
  const hash = `0x${encodeHex(block.hash)}`
  if (lookedUp?.chainId !== block.chainId)
    return established({ block, timeMs: null }, `made of ${hash}, which was not looked up`)
  if (lookedUp.block?.hash.toLowerCase() !== hash)
    throw refuseEvidence(
      'block_not_on_chain',
      `expected block ${block.number} of chain ${block.chainId} to be ${hash}`,
    )
  const timeMs = Math.min(lookedUp.block.timestamp * 1000, DATE_MS_MAX)
  const detail = `made of block ${block.number} of chain ${block.chainId}, of ${new Date(timeMs).toISOString()}`
  return established({ block, timeMs }, detail)
}

function isLookedUp({ chainId, block }: LookedUpBlock): boolean {
  if (!isCount(chainId)) return false
  return block === null || (/^0x[0-9a-fA-F]{64}$/.test(block.hash) && isCount(block.timestamp))
}

/**
 * The collector's clock can only refuse: nothing signs `fetched_at`, so anybody can state a later
 * time.
 */
function checkAge(
  { fetchedAtMs }: ProviderEvidence,
  {
    atMs,
    maxAgeMs,
    needsBlock,
    blockTimeMs,
  }: Pick<ProviderTerms, 'maxAgeMs' | 'needsBlock'> & {
    readonly atMs: number
    readonly blockTimeMs: number | null
  },
) {
  const ageMs = atMs - (blockTimeMs ?? fetchedAtMs)
  if (ageMs < -CLOCK_SKEW_MS)
    throw refuseEvidence(
      'evidence_from_future',
      'expected evidence from before the time of the check',
    )
  if (ageMs > maxAgeMs)
    throw refuseEvidence(
      'evidence_too_old',
      `expected evidence of the last ${maxAgeMs / 3_600_000} hours`,
    )
  if (blockTimeMs === null)
    return {
      notChecked: "only the collector states a time: the nonce's block was not looked up",
      isWaived: !needsBlock,
    }
  return established(true, `its block is of ${Math.max(0, ageMs)} ms before`)
}
