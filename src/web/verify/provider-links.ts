import type { BundleReport, ProviderEvidenceFacts } from '#attestation/evidence/bundle-checks.ts'
import type { Check } from '#attestation/finding.ts'
import type { ProviderCheck } from '#attestation/providers/provider-checks.ts'
import { describeProvider, type ProviderLine } from '#attestation/report/describe-provider.ts'
import type { LinkName } from './check-words.ts'
import { type LinkState, linkStates } from './link-states.ts'

/**
 * The links from the key that answered to the weights. If a link in `needs` is broken, this link
 * shows nothing, because code that is not accepted can state any key.
 */
const PROVIDER_LINKS = [
  {
    name: 'key',
    title: 'Key',
    about: 'the machine of the provider states the key that answered',
    needs: ['machine', 'model-code'],
  },
  {
    name: 'machine',
    title: 'Machine',
    about: 'genuine hardware signed what it runs',
    needs: ['key'],
  },
  {
    name: 'model-code',
    title: 'Code',
    about: 'the machine runs code that you accept',
    needs: ['key', 'machine'],
  },
  {
    name: 'gpu',
    title: 'GPU',
    about: 'NVIDIA’s devices signed evidence',
    needs: ['key', 'machine', 'model-code'],
  },
  {
    name: 'weights',
    title: 'Weights',
    about: 'measured root hashes name them',
    needs: ['key', 'machine', 'model-code', 'gpu'],
  },
] as const

/** The links of the first chain that show which key of a provider answered. */
const RECEIPT_LINKS: ReadonlySet<LinkName> = new Set([
  'request',
  'hash',
  'signature',
  'notary',
  'code',
])

type ProviderLinkName = (typeof PROVIDER_LINKS)[number]['name']

/** A link of the second chain. */
export type ProviderLink = Pick<LinkState, 'title' | 'about' | 'why' | 'checks'> & {
  readonly name: ProviderLinkName
  readonly state: 'holds' | 'broken' | 'open' | 'void'
  /** Facts about the link, as untrusted text. */
  readonly lines: readonly ProviderLine[]
}

/**
 * The input for both chains. `checks` are the checks of a bundle, and of the exchange that the
 * reader kept.
 */
export type ReportOfBoth = Pick<BundleReport, 'providerChecks' | 'facts'> & {
  readonly checks: readonly Check<string>[]
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
 * failed, and open when a check was not made. An intact link becomes void when a link that it needs
 * is broken, or when the first chain does not show which key answered.
 */
export function providerLinks({
  checks,
  providerChecks,
  facts,
}: ReportOfBoth): readonly ProviderLink[] {
  const evidence = facts?.providerEvidence ?? null
  const own = checks.filter(({ name }) => isProviderCheck(name))
  const all = [
    ...own.map((check) => ({ ...check, code: null, isWaived: false })),
    ...providerChecks,
  ]
  const lines = evidence === null ? [] : describeProvider(evidence, evidence.weights)
  const lost = linkStates(checks.filter(({ name }) => !isProviderCheck(name))).find(
    ({ name, state }) => RECEIPT_LINKS.has(name) && state !== 'holds' && state !== 'open',
  )
  const judged = PROVIDER_LINKS.map((link) => {
    const made = all.filter(({ name }) => linkOfCheck(name) === link.name)
    return { ...link, checks: made, ...judgeLink(link.name, made, evidence) }
  })
  const broken = judged.filter(({ state }) => state === 'broken')
  return judged.map(({ needs, ...link }) => {
    const shown = lines.filter(([name]) => (LINK_OF_LINE[name] ?? 'machine') === link.name)
    const needed = lost ?? broken.find(({ name }) => needs.some((need) => need === name))
    return link.state === 'holds' && needed !== undefined
      ? { ...link, lines: shown, state: 'void' as const, why: needed.title }
      : { ...link, lines: shown }
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
