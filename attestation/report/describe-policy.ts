import { encodeHex } from '../bytes.ts'
import type { BundlePolicy } from '../evidence/policy.ts'
import type { MeasurementSet } from '../nitro/policy.ts'
import type { CodeTerms, ProviderPolicy } from '../providers/evidence/provider-policy.ts'
import { ANY_TAG } from '../providers/sigstore/sigstore-trust.ts'
import { configurationOf } from '../release/release.ts'
import type { ReleaseEntry } from '../release/release-list.ts'
import { nameRelease } from '../release/release-name.ts'
import {
  type EnclavesPolicy,
  type Policy,
  readEnclavesPolicy,
  readProviderPolicies,
  releaseLists,
  valuesOf,
} from './policy-file.ts'
import { isOtherRoot } from './unknown-root.ts'

/** Sentences for people. */
export type PolicyDescription = {
  readonly accepts: readonly string[]
  /** What evidence that the policy accepts does not show. */
  readonly open: readonly string[]
}

/** Throws PolicyError as readPolicyFile does. */
export async function describePolicy(policy: Policy): Promise<PolicyDescription> {
  const enclaves = readEnclavesPolicy(policy)
  const providers = await readProviderPolicies(policy)
  const parts = [
    enclaves === null ? NO_ENCLAVES : describeEnclaves(enclaves, policy.enclaves ?? {}),
    ...(providers === null ? [NO_PROVIDERS] : providers.map(describeProvider)),
  ]
  return {
    accepts: [
      ...parts.flatMap(({ accepts }) => accepts),
      ...(providers === null ? [] : ['No other provider is accepted.']),
    ],
    open: [...parts.flatMap(({ open }) => open), NO_TIME],
  }
}

const NO_ENCLAVES: PolicyDescription = {
  accepts: [],
  open: ['It names no enclaves, so any program could have signed an answer.'],
}
const NO_PROVIDERS: PolicyDescription = {
  accepts: [],
  open: ['It names no providers, so it does not say what ran on the machine of the model.'],
}
const NO_TIME =
  'It does not show that an answer is true. Only an endpoint of the chain shows that the chain has its block.'

function describeEnclaves(
  { measurements = [], releases = [], configurations = [], roots }: BundlePolicy,
  { releases: files, releaseKeys, releaseSigners = 1 }: EnclavesPolicy,
): PolicyDescription {
  const isDevelopment = isOtherRoot(roots)
  const keys = valuesOf(releaseKeys)
  const isConfigured = releases.some(({ release }) => configurationOf(release) !== null)
  return {
    accepts: [
      ...releases.map(sayRelease),
      ...(files === undefined
        ? []
        : [`Releases that ${releaseSigners} of these keys signed: ${keys.join(', ')}.`]),
      ...measurements.map((set) => `An enclave with the measurements ${saySet(set)}.`),
      ...(isConfigured ? ['The boot configuration that the release of the enclave names.'] : []),
      ...configurations.map((one) => `The boot configuration with SHA-256 ${encodeHex(one)}.`),
      ...(roots === undefined
        ? ["Attestation documents under AWS's root."]
        : roots.map((root) => `Attestation documents under the root ${encodeHex(root)}.`)),
    ],
    open: [
      ...(valuesOf(files).length > releaseLists(files).length
        ? ['A release is there without a list, so it is not known whether it was revoked.']
        : []),
      ...(measurements.length > 0
        ? ['Measurements do not say who built the code, or whether it was revoked.']
        : []),
      ...(isDevelopment
        ? ["A root is not AWS's, such as the root of a development enclave, which proves nothing."]
        : []),
    ],
  }
}

function sayRelease({ release, accepted_from, accepted_until, revoked }: ReleaseEntry): string {
  const name = nameRelease(release)
  if (revoked !== null) return `No enclave that runs ${name}, revoked at ${revoked.at}.`
  const from = accepted_from === null ? '' : `, from ${accepted_from}`
  const until = accepted_until === null ? '' : `, until ${accepted_until}`
  return `An enclave that runs ${name}${from}${until}.`
}

function saySet(set: MeasurementSet): string {
  return [...set].map(([index, value]) => `PCR${index} ${encodeHex(value)}`).join(', ')
}

function describeProvider(policy: ProviderPolicy): PolicyDescription {
  const { kind, origins, maxAgeMs, needsBlock, code, tdx, snp, gpu, weights, roots } = policy
  const hardware = [tdx && 'TDX', snp && 'SEV-SNP', kind === 'nitro' && 'Nitro'].filter(Boolean)
  const name = `the provider at ${origins.join(', ')}`
  return {
    accepts: [
      `Answers of ${name}, of the kind ${kind}, on ${hardware.join(' or ')}, with evidence of at ` +
        `most ${maxAgeMs / HOUR_MS} hours.`,
      `Of ${name}: ${sayCode(code)}.`,
      ...(gpu === 'required' ? [`Of ${name}: only with a GPU that is attested.`] : []),
      ...(weights === null ? [] : [`Of ${name}: weights with root hash ${weights.join(', ')}.`]),
    ],
    open: [
      ...openCode(code).map((sentence) => `Of ${name}: ${sentence}.`),
      ...(tdx?.platforms === 'any' ? [`Of ${name}: any TDX firmware is accepted.`] : []),
      ...(weights === null ? [`Of ${name}: any weights are accepted.`] : []),
      ...(needsBlock ? [] : [`Of ${name}: the age of the evidence is known only from a chain.`]),
      ...(roots.isReplaced
        ? [`Of ${name}: the roots are those of the policy, for development.`]
        : []),
    ],
  }
}

const HOUR_MS = 3_600_000

function sayCode(code: CodeTerms): string {
  switch (code.by) {
    case 'release': {
      const { repository, refs, digests } = code.identity
      const only = digests === null ? '' : `, with digest ${digests.join(', ')}`
      return `builds of ${repository} at ${refs.join(', ')}${only}`
    }
    case 'measurements':
      return `${code.tdx.length} TDX and ${code.snp.length} SEV-SNP measurements`
    case 'application':
      return `applications with compose hash ${code.composeHashes.map(encodeHex).join(', ')}`
    case 'enclave':
      return (
        `enclaves with the measurements ${code.measurements.map(saySet).join(' or ')}, and boot ` +
        `configuration ${code.configurations.map(encodeHex).join(' or ')}`
      )
  }
}

function openCode(code: CodeTerms): readonly string[] {
  if (code.by === 'application' && code.images === 'any')
    return ['any operating system is accepted, which can state any application']
  if (code.by === 'release' && code.identity.refs.includes(ANY_TAG))
    return ['any tag is accepted, also of later builds']
  return []
}
