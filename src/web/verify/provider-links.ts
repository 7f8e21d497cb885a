import type {
  BundleReport,
  ProviderEvidenceFacts,
} from '../../../attestation/evidence/bundle-report.ts'
import type { ProviderCheck } from '../../../attestation/providers/provider-checks.ts'
import {
  describeProvider,
  type ProviderLine,
} from '../../../attestation/report/describe-provider.ts'
import type { LinkState } from './link-states.ts'

/** The links of the second chain, from the key that answered to the weights. */
const PROVIDER_LINKS = [
  { name: 'key', title: 'Key', about: 'the machine of the provider states the key that answered' },
  { name: 'machine', title: 'Machine', about: 'genuine hardware signed what it runs' },
  { name: 'model-code', title: 'Code', about: 'the machine runs code that you accept' },
  { name: 'gpu', title: 'GPU', about: 'NVIDIA’s devices signed evidence' },
  { name: 'weights', title: 'Weights', about: 'measured root hashes name them' },
] as const

type ProviderLinkName = (typeof PROVIDER_LINKS)[number]['name']

/** One link of the second chain. */
export type ProviderLink = Pick<LinkState, 'title' | 'about' | 'why' | 'checks'> & {
  readonly name: ProviderLinkName
  readonly state: 'holds' | 'broken' | 'open' | 'void'
  /** Facts about the link. Text from outside. */
  readonly lines: readonly ProviderLine[]
}

/** True if the report says something about the machine of the provider. */
export function hasProviderChain({ checks }: Pick<BundleReport, 'checks'>): boolean {
  return checks.some(({ name }) => isProviderCheck(name))
}

/** True for the checks of a bundle that are about its provider's machine. */
export function isProviderCheck(name: string): boolean {
  return name === "provider's key" || name === 'provider attested'
}

/**
 * Returns the links of the provider's machine, in order. A link is broken when one of its checks
 * failed, open when a check was not made, and void when a link before it is broken.
 */
export function providerLinks({
  checks,
  providerChecks,
  facts,
}: Pick<BundleReport, 'checks' | 'providerChecks' | 'facts'>): readonly ProviderLink[] {
  const evidence = facts?.providerEvidence ?? null
  const own = checks.filter(({ name }) => isProviderCheck(name))
  const all = [
    ...own.map((check) => ({ ...check, code: null, isWaived: false })),
    ...providerChecks,
  ]
  const lines = evidence === null ? [] : describeProvider(evidence, evidence.weights)
  let broken: string | null = null
  return PROVIDER_LINKS.map((link) => {
    const made = all.filter(({ name }) => linkOfCheck(name) === link.name)
    const judged = judgeLink(link.name, made, evidence)
    const isVoid = judged.state === 'holds' && broken !== null
    const state = isVoid ? { state: 'void' as const, why: broken ?? '' } : judged
    if (judged.state === 'broken') broken ??= link.title
    return {
      ...link,
      checks: made,
      lines: lines.filter(([name]) => (LINK_OF_LINE[name] ?? 'machine') === link.name),
      ...state,
    }
  })
}

function judgeLink(
  link: ProviderLinkName,
  checks: readonly ProviderCheck[],
  evidence: ProviderEvidenceFacts | null,
): Pick<ProviderLink, 'state' | 'why'> {
  const namesOf = (some: readonly ProviderCheck[]) => some.map(({ name }) => name).join(', ')
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  if (failed.length > 0) return { state: 'broken', why: namesOf(failed) }
  if (link === 'weights' && evidence?.isAccepted) {
    const { measured, weights, reason } = evidence.weights
    return measured === null
      ? { state: 'open', why: `${weights === 'unknown' ? 'unknown' : 'claimed'}: ${reason}` }
      : { state: 'holds', why: '' }
  }
  const open = checks.filter(({ outcome, isWaived }) => outcome === 'not checked' && !isWaived)
  if (open.length > 0) return { state: 'open', why: namesOf(open) }
  return checks.some(({ outcome }) => outcome === 'passed')
    ? { state: 'holds', why: '' }
    : { state: 'open', why: 'there is no evidence' }
}

function linkOfCheck(name: string): ProviderLinkName {
  if (name === "provider's key" || name === 'key binding') return 'key'
  if (name === 'code' || /^(?:Sigstore|dstack)\b/.test(name)) return 'model-code'
  if (name.startsWith('GPU')) return 'gpu'
  return name === 'weights' ? 'weights' : 'machine'
}

const LINK_OF_LINE: Readonly<Record<string, ProviderLinkName>> = {
  'TLS key': 'key',
  X25519: 'key',
  code: 'model-code',
  GPU: 'gpu',
  weights: 'weights',
}
