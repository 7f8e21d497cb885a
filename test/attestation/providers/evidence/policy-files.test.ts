import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import type { Json } from '#attestation/json/value.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { PROVIDER_KINDS } from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { parsePolicy, readPolicyFile } from '#attestation/report/policy-file.ts'
import { buildProviderEvidence } from '../../../support/provider-builder/evidence-builder.ts'

const folder = 'docs/provider-policies'
const files = readdirSync(folder).filter((name) => name.endsWith('.json'))

it.each(files)('the example %s is a policy that the README names', async (name) => {
  const { providers = [] } = await readPolicyFile(parsePolicy(readFileSync(join(folder, name))))
  for (const policy of providers) {
    expect(name.startsWith(policy.kind)).toBe(true)
    expect(policy.roots.isReplaced).toBe(false)
  }
  expect(providers).toHaveLength(1)
  expect(readFileSync(join(folder, 'README.md'), 'utf8')).toContain(`[${name}](${name})`)
})

it('the examples have a policy of each kind', () => {
  for (const kind of PROVIDER_KINDS) expect(files).toContain(`${kind}.json`)
})

const tinfoil = buildProviderEvidence('tinfoil v3 TDX').policy
const snp = {
  ...tinfoil,
  tdx: undefined,
  weights: undefined,
  snp: { floors: { Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 } } },
}
const dstack = buildProviderEvidence('dstack').policy
const nitro = buildProviderEvidence('nitro').policy
const sets = (tdx: object, platforms: object | string) => ({
  ...tinfoil,
  release: undefined,
  weights: undefined,
  measurements: { tdx: [tdx] },
  tdx: { evaluation_number_min: 18, platforms },
})
const value = '00'.repeat(48)
const whole = { mrtd: value, rtmr0: value, rtmr1: value, rtmr2: value }
const { rtmr2: _, ...withoutCommandLine } = whole
const { mrtd: __, ...withoutFirmware } = whole
const ref = { repository: 'example/model', refs: ['refs/tags/v1'] }

/** Policies with one fault, and the member that the message names. */
const FAULTS: readonly (readonly [string, string, object])[] = [
  ['an unknown member', 'the policy', { ...dstack, compose_hash: [] }],
  ['another version', 'version', { ...dstack, version: 2 }],
  ['another kind', 'kind', { ...dstack, kind: 'chutes' }],
  ['no origin', 'origins', { ...dstack, origins: [] }],
  ['an origin without TLS', 'origins.0', { ...dstack, origins: ['http://provider.example'] }],
  ['an empty list of applications', 'compose_hashes', { ...dstack, compose_hashes: [] }],
  ['any application', 'compose_hashes', { ...dstack, compose_hashes: 'any' }],
  ['an empty list of images', 'images', { ...dstack, images: [] }],
  ['no terms of TDX', 'the policy', { ...dstack, tdx: undefined }],
  [
    'a revoked status',
    'tdx.statuses.0',
    { ...dstack, tdx: { evaluation_number_min: 18, statuses: ['Revoked'] } },
  ],
  [
    'an empty list of statuses',
    'tdx.statuses',
    { ...dstack, tdx: { evaluation_number_min: 18, statuses: [] } },
  ],
  ['no code', 'the policy', { ...tinfoil, release: undefined, weights: undefined }],
  ['two kinds of code', 'the policy', { ...tinfoil, measurements: { tdx: [] } }],
  ['an empty list of refs', 'release.refs', { ...tinfoil, release: { ...ref, refs: [] } }],
  ['any branch', 'release.refs.0', { ...tinfoil, release: { ...ref, refs: ['refs/heads/*'] } }],
  [
    'a ref of a pull request',
    'release.refs.0',
    { ...tinfoil, release: { ...ref, refs: ['refs/pull/1/merge'] } },
  ],
  ['no terms of TDX and SEV-SNP', 'the policy', { ...tinfoil, tdx: undefined }],
  [
    'a repository by URL',
    'release.repository',
    { ...tinfoil, release: { ...ref, repository: 'github.com/a/b' } },
  ],
  [
    'an empty list of platforms',
    'tdx.platforms',
    { ...tinfoil, tdx: { evaluation_number_min: 18, platforms: [] } },
  ],
  ['no floor of the evaluation number', 'tdx', { ...dstack, tdx: {} }],
  ['no platforms', 'tdx', { ...tinfoil, tdx: { evaluation_number_min: 18 } }],
  [
    'a platform without RTMR0',
    'tdx.platforms.0',
    { ...tinfoil, tdx: { evaluation_number_min: 18, platforms: [{ mrtd: '00'.repeat(48) }] } },
  ],
  ['an empty list of weights', 'weights', { ...tinfoil, weights: [] }],
  [
    'weights beside measurements',
    'weights',
    { ...tinfoil, release: undefined, measurements: { tdx: [{ mrtd: '00'.repeat(48) }] } },
  ],
  [
    'measurements of other hardware',
    'the policy',
    {
      ...tinfoil,
      release: undefined,
      weights: undefined,
      measurements: { snp: ['00'.repeat(48)] },
    },
  ],
  ['RTMR3 alone', 'measurements.tdx', sets({ rtmr3: value }, 'any')],
  ['a set without firmware', 'measurements.tdx', sets(withoutFirmware, 'any')],
  [
    'a set without RTMR2',
    'measurements.tdx',
    sets(withoutCommandLine, [{ mrtd: value, rtmr0: value }]),
  ],
  [
    'sets that no platform can have',
    'measurements.tdx',
    sets(whole, [{ mrtd: '11'.repeat(48), rtmr0: value }]),
  ],
  [
    'an empty list of FMSPCs',
    'tdx.fmspcs',
    { ...dstack, tdx: { evaluation_number_min: 18, fmspcs: [] } },
  ],
  [
    'an FMSPC in upper case',
    'tdx.fmspcs.0',
    { ...dstack, tdx: { evaluation_number_min: 18, fmspcs: ['B0C06F000000'] } },
  ],
  ['a level above VMPL 3', 'snp.vmpl', { ...snp, snp: { ...snp.snp, vmpl: 4 } }],
  [
    'no bit of the platform',
    'snp.platform_info',
    { ...snp, snp: { ...snp.snp, platform_info: {} } },
  ],
  [
    'an unknown bit of the platform',
    'snp.platform_info',
    { ...snp, snp: { ...snp.snp, platform_info: { bit8: true } } },
  ],
  [
    'the id of a masked chip',
    'snp.chip_ids',
    { ...snp, snp: { ...snp.snp, chip_ids: ['00'.repeat(64)] } },
  ],
  ['floors of no product', 'snp.floors', { ...tinfoil, snp: { floors: {} } }],
  [
    'a floor without a part',
    'snp.floors.Milan',
    { ...tinfoil, snp: { floors: { Milan: { snp: 1 } } } },
  ],
  ['an empty list of PCRs', 'measurements', { ...nitro, measurements: [] }],
  ['a set without PCR0', 'measurements.0', { ...nitro, measurements: [{ PCR1: '00'.repeat(48) }] }],
  ['an empty list of configurations', 'configurations', { ...nitro, configurations: [] }],
  ['an empty list of roots', 'roots.intel', { ...nitro, roots: { intel: [] } }],
  ['a text as a flag', 'needs_block', { ...nitro, needs_block: 'true' }],
]

it.each(FAULTS)('parseProviderPolicy refuses %s, and names %s', (_, member, file) => {
  const parse = () => parseProviderPolicy(Buffer.from(JSON.stringify(file)))
  expect(parse).toThrow(PolicyError)
  expect(parse).toThrow(`expected ${member} to be`)
})

it('parseProviderPolicy refuses a member that is there twice', () => {
  const text = JSON.stringify(nitro satisfies Json).replace('{', '{"version":1,')
  expect(() => parseProviderPolicy(Buffer.from(text))).toThrow(PolicyError)
})
