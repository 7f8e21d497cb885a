import { encodeHex } from '#attestation/bytes.ts'
import { ownMembers } from '#attestation/own-members.ts'
import { describePolicy } from '#attestation/report/describe-policy.ts'
import { type EnclavesPolicy, type Policy, valuesOf } from '#attestation/report/policy-file.ts'
import { printable } from '#attestation/report/printable.ts'
import { openConfigurationDigest, readRoots } from './expected-evidence.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import { writeOutput } from './files.ts'
import type { ReleaseOptions } from './options.ts'
import { openedPolicyOf, openPolicy } from './policy-file.ts'
import { jsonText } from './printable.ts'
import { openSignedReleases } from './release/accepted-releases.ts'
import { readReleaseKey } from './release/release-files.ts'

export type PolicyOptions = ReleaseOptions & {
  /** Policies whose parts are in the new policy. */
  readonly from?: readonly string[]
  readonly pcr?: ReadonlyMap<number, Uint8Array>
  readonly configuration?: readonly string[]
  readonly root?: readonly string[]
  readonly output?: string
}

/**
 * Writes a policy, and on standard error what it leaves open. Verifies the signatures of releases.
 * Throws CliError, also if the policy would accept any code or any configuration.
 */
export async function makePolicy(options: PolicyOptions): Promise<void> {
  const { from = [], output } = ownMembers(options)
  const added = await readEnclaveOptions(options)
  if (from.length === 0 && added === null)
    throw new CliError('expected --release with --release-key, --pcr or --from', EXIT_CODES.usage)
  const opened = await Promise.all(from.map((file) => openPolicy(file)))
  const policy = joinPolicies(
    opened.map(({ policy }) => policy),
    added,
  )
  await openedPolicyOf(policy, 'these options')
  await writeOutput(jsonText(policy), output)
  const { open } = await describePolicy(policy)
  process.stderr.write(listed('It leaves open:', open))
}

/** Prints what a policy accepts, and what it leaves open. Throws CliError. */
export async function showPolicy(
  file: string,
  { json = false }: { readonly json?: boolean },
): Promise<void> {
  const { policy } = await openPolicy(file)
  const { accepts, open } = await describePolicy(policy)
  process.stdout.write(
    json
      ? jsonText({ accepts, open })
      : `${listed('It accepts:', accepts)}\n${listed('It leaves open:', open)}`,
  )
}

function listed(title: string, sentences: readonly string[]): string {
  return [title, ...sentences.map((sentence) => `  - ${printable(sentence)}`), ''].join('\n')
}

/** Null if no option is about enclaves. */
async function readEnclaveOptions(options: PolicyOptions): Promise<EnclavesPolicy | null> {
  const { releaseKey = [], releaseSigners, pcr, ...more } = ownMembers(options)
  const { configuration = [], root = [] } = more
  const opened = (await openSignedReleases(options)) ?? []
  const keys = await Promise.all(releaseKey.map(readReleaseKey))
  const configurations = await Promise.all(configuration.map(openConfigurationDigest))
  const roots = (await Promise.all(root.map(readRoots))).flat().map(encodeHex)
  const enclaves = {
    ...(opened.length === 0
      ? {}
      : { releases: opened.map(({ file }) => file.signed), releaseKeys: keys.map(encodeHex) }),
    ...(releaseSigners === undefined ? {} : { releaseSigners }),
    ...(pcr === undefined ? {} : { measurements: [namesOf(pcr)] }),
    ...(configurations.length === 0 ? {} : { configurations: configurations.map(encodeHex) }),
    ...(roots.length === 0 ? {} : { roots }),
  }
  return Object.keys(enclaves).length === 0 ? null : enclaves
}

function namesOf(pcrs: ReadonlyMap<number, Uint8Array>): Readonly<Record<string, string>> {
  return Object.fromEntries([...pcrs].map(([index, value]) => [`PCR${index}`, encodeHex(value)]))
}

const LISTS = ['releases', 'releaseKeys', 'measurements', 'configurations', 'roots'] as const

/**
 * A policy that accepts what one of `policies` accepts, and what `added` names. Throws CliError if
 * the policies differ in a member that holds for all enclaves.
 */
function joinPolicies(policies: readonly Policy[], added: EnclavesPolicy | null): Policy {
  const files = policies.flatMap(({ enclaves }) => enclaves ?? [])
  if (new Set(files.map(({ roots }) => roots === undefined)).size > 1)
    throw new CliError(
      "expected all policies with roots, or all without: one without roots trusts AWS's root",
      EXIT_CODES.usage,
    )
  const all = [...files, ...(added === null ? [] : [added])]
  const signed = all.filter(({ releases }) => releases !== undefined)
  const signers = new Set(signed.map(({ releaseSigners = 1 }) => releaseSigners))
  if (signers.size > 1)
    throw new CliError(
      'expected the same number of signers for all releases (--release-signers), got ' +
        [...signers].join(', '),
      EXIT_CODES.usage,
    )
  const lists = LISTS.flatMap((name) => {
    const values = distinct(all.flatMap((enclaves) => valuesOf<unknown>(enclaves[name])))
    return values.length === 0 ? [] : [[name, values] as const]
  })
  const [releaseSigners = 1] = signers
  const providers = distinct(policies.flatMap((policy) => valuesOf(policy.providers)))
  return {
    ...(all.length === 0
      ? {}
      : {
          enclaves: {
            ...Object.fromEntries(lists),
            ...(releaseSigners === 1 ? {} : { releaseSigners }),
          },
        }),
    ...(providers.length === 0 ? {} : { providers }),
  }
}

function distinct<Value>(values: readonly Value[]): readonly Value[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()]
}
