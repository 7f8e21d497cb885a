import { encodeHex } from '../bytes.ts'
import type { RecordWeights } from '../providers/evidence/model-weights.ts'
import type { ProviderFacts } from '../providers/evidence/verify-provider-evidence.ts'
import { isoOf } from './printable.ts'

/** The text may be attacker-controlled. */
export type ProviderLine = readonly [name: string, text: string]

/**
 * Describes the facts in the evidence of a provider. They are proved only if the evidence was
 * accepted. `weights`: the weights of a record's model, or null for the weights of all models. Text
 * is not escaped.
 */
export function describeProvider(
  facts: ProviderFacts,
  weights: RecordWeights | null,
): readonly ProviderLine[] {
  const { tcb, code, block } = facts
  const levels = Object.entries(tcb?.versions ?? {}).map(([part, level]) => `${part} ${level}`)
  const number = tcb?.evaluationNumber ? [`by Intel's data ${tcb.evaluationNumber}`] : []
  const debug = facts.isDebugOff ? '' : '; it is not shown that debugging is off'
  return [
    ['provider', facts.origin],
    ['kind', facts.kind],
    ['machine', facts.tee === null ? 'not shown' : `${facts.tee}${debug}`],
    [
      'TCB',
      tcb === null ? 'not shown' : [tcb.status, ...tcb.advisories, ...levels, ...number].join(', '),
    ],
    ...Object.entries(facts.measurements),
    ['code', code === null ? 'not shown' : sayProviderCode(code)],
    ...sayKeys(facts),
    ['GPU', facts.gpus.length === 0 ? 'not shown' : facts.gpus.join(', ')],
    ...(weights === null ? sayModels(facts) : [['weights', sayWeights(weights)] as const]),
    ['fetched', `${isoOf(facts.fetchedAtMs)}, by the collector's clock`],
    ['block', block === null ? 'none' : `not before ${sayNonce(block, facts.blockTimeMs)}`],
    ['ends', facts.endsAtMs === null ? 'not stated' : isoOf(facts.endsAtMs)],
    ...(facts.hasReplacedRoots
      ? [['roots', "of the policy in place of the makers' roots: for development"] as const]
      : []),
  ]
}

/** The words for roots that a policy trusts in place of the hardware makers' roots. */
export const DEVELOPMENT_ROOTS = 'roots of the policy that are for development'

/** Facts that evidence of a provider never proves. */
export const PROVIDER_NOT_SHOWN: readonly string[] = [
  'that no owner of the machine reads it by side channels or probes on the memory bus',
  'who operates the machine',
  'that the GPU and the CPU are one machine',
  'that the code is good, or that what the provider claims beyond these facts is true',
]

function sayWeights({ weights, reason, measured }: RecordWeights): string {
  if (measured === null) return `${weights === 'unknown' ? 'unknown' : 'claimed'}: ${reason}`
  return `proven: ${measured.name} is ${measured.source}, root hash ${measured.rootHash}`
}

function sayModels({ model }: ProviderFacts): readonly ProviderLine[] {
  const { weights, reason, models } = model
  if (models.length === 0) return [['weights', sayWeights({ weights, reason, measured: null })]]
  return models.map((measured) => ['weights', sayWeights({ weights, reason, measured })] as const)
}

function sayProviderCode({ by, repository, release, digest }: NonNullable<ProviderFacts['code']>) {
  const named = [repository, release, digest].filter((part) => part !== null)
  return named.length === 0 ? `by its ${by}` : `${named.join(', ')} (by its ${by})`
}

function sayKeys({ tlsKeys, encryptionKey }: ProviderFacts): readonly ProviderLine[] {
  const keys = tlsKeys.map(({ spkiSha256 }) => ['TLS key', spkiSha256] as const)
  return [
    ...(keys.length === 0 ? [['TLS key', 'not shown'] as const] : keys),
    ...(encryptionKey === null ? [] : [['X25519', encryptionKey] as const]),
  ]
}

function sayNonce(
  { chainId, number, hash }: NonNullable<ProviderFacts['block']>,
  timeMs: number | null,
): string {
  const name = `0x${encodeHex(hash)}`
  return timeMs === null
    ? `block ${name}, which was not looked up`
    : `block ${number} of chain ${chainId}, ${name}, of ${isoOf(timeMs)}`
}
