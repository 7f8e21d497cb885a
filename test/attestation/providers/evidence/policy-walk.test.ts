import { describe, expect, it } from 'vitest'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { writeProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { verifyProviderEvidence } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { FMSPC } from '#src/local/tee/intel-pki.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import {
  type BuiltKind,
  buildProviderEvidence,
  type EvidenceChanges,
  RTMRS,
} from '../../../support/provider-builder/evidence-builder.ts'
import { DIGEST } from '../../../support/provider-builder/sigstore-builder.ts'
import { levelOf, MR_TD, platformTcb } from '../../../support/provider-builder/tdx-builder.ts'

/** A policy with each member of one form, and evidence that passes it at the edge of each. */
type Form = EvidenceChanges & {
  readonly kind: BuiltKind
  /** The roots that the evidence is under. */
  readonly roots: readonly string[]
}

const HOUR_MS = 3_600_000
const hex = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString('hex')
const evidence = { fetchedAtMs: MADE_AT.getTime() - 48 * HOUR_MS, block: null }
const common = { max_age_hours: 48, needs_block: false }
const outdated = { tcbStatus: 'OutOfDate', advisoryIDs: ['INTEL-SA-00615'] }
const recovery = new Date(MADE_AT.getTime() - 99.5 * 24 * HOUR_MS).toISOString().slice(0, 19)
const tdx = {
  tcbInfo: { tcbLevels: [levelOf(platformTcb(), outdated)] },
  evaluationNumbers: {
    tcbEvalNumbers: [{ tcbEvaluationDataNumber: 19, tcbRecoveryEventDate: `${recovery}Z` }],
  },
}
const tdxTerms = {
  evaluation_number_min: 18,
  evaluation_number_days: 100,
  fmspcs: [FMSPC],
  statuses: ['OutOfDate'],
  advisories: ['INTEL-SA-00615'],
}
const firmware = { mrtd: hex(MR_TD), rtmr0: hex(RTMRS[0]) }
const kernel = { rtmr1: hex(RTMRS[1]), rtmr2: hex(RTMRS[2]), rtmr3: '00'.repeat(48) }
const snpTerms = {
  floors: { Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 } },
  needs_revocation_list: false,
  needs_committed: false,
  vmpl: 0,
  platform_info: {
    smt: true,
    tsme: false,
    ecc: true,
    rapl_off: false,
    ciphertext_hiding: false,
    alias_check_complete: true,
    iommu_write_safe: false,
    trusted_io: false,
  },
  chip_ids: ['c1'.repeat(64)],
}
const onMeasurements = { release: undefined, weights: undefined }
const application = { ...common, tdx: tdxTerms, gpu: 'optional' }

const FORMS: Readonly<Record<string, Form>> = {
  'a release on TDX': {
    kind: 'tinfoil v3 TDX',
    tdx,
    evidence,
    policy: {
      ...common,
      release: {
        repository: 'example/model',
        refs: ['refs/tags/v1.0.0'],
        digests: [DIGEST],
      },
      tdx: { ...tdxTerms, platforms: [firmware] },
      gpu: 'optional',
    },
    roots: ['intel', 'sigstore'],
  },
  'a release on SEV-SNP': {
    kind: 'tinfoil v3 SNP',
    snp: (report) => void report.set([30], 0x1e8),
    evidence,
    collateral: (all) => all.filter(({ url }) => !url.endsWith('/crl')),
    policy: { ...common, snp: snpTerms, gpu: undefined },
    roots: ['amd', 'nvidia', 'sigstore'],
  },
  'measurements on TDX with platforms': {
    kind: 'tinfoil v3 TDX',
    evidence,
    policy: {
      ...common,
      ...onMeasurements,
      measurements: { tdx: [kernel] },
      tdx: { evaluation_number_min: 18, platforms: [firmware] },
    },
    roots: ['intel'],
  },
  'measurements on TDX with any platform': {
    kind: 'tinfoil v3 TDX',
    evidence,
    policy: {
      ...common,
      ...onMeasurements,
      measurements: { tdx: [{ ...firmware, ...kernel }] },
      tdx: { evaluation_number_min: 18, platforms: 'any' },
    },
    roots: ['intel'],
  },
  'measurements on SEV-SNP': {
    kind: 'tinfoil v2',
    policy: { release: undefined, measurements: { snp: ['4d'.repeat(48)] } },
    roots: ['amd'],
  },
  'an application of dstack': {
    kind: 'dstack',
    tdx,
    evidence,
    policy: application,
    roots: ['intel'],
  },
  'an application of ACI': {
    kind: 'aci',
    tdx,
    evidence,
    policy: application,
    roots: ['intel'],
  },
  'an enclave of Nitro': {
    kind: 'nitro',
    evidence,
    policy: common,
    roots: ['aws'],
  },
}

/** Members of which one value alone is a policy at all, or of which another value accepts more. */
const OTHERS: Readonly<Record<string, Json | null>> = {
  version: null,
  kind: null,
  'tdx.platforms': null,
  max_age_hours: 47,
  'tdx.evaluation_number_days': 99,
  'tdx.statuses.0': 'SWHardeningNeeded',
  gpu: 'required',
  'images.0.checksums': `${'00'.repeat(32)}  metadata.json\n`,
}

function otherOf(value: Json): Json {
  if (typeof value === 'number') return value + 1
  if (typeof value === 'boolean') return !value
  const text = String(value)
  if (/^[0-9a-f]+$/.test(text)) return text.slice(0, -1) + (text.endsWith('7') ? '8' : '7')
  const bytes = Buffer.from(text, 'base64')
  if (bytes.toString('base64') === text && bytes.length > 32)
    return Buffer.from(bytes.with(0, 0)).toString('base64')
  return `${text}x`
}

type Leaf = readonly [path: string, value: Json]

function leavesOf(json: Json, path = ''): readonly Leaf[] {
  if (typeof json !== 'object' || json === null) return [[path, json]]
  return Object.entries(json).flatMap(([name, value]) =>
    leavesOf(value, path === '' ? name : `${path}.${name}`),
  )
}

/** The objects in a policy with their paths. */
function objectsOf(
  json: Json,
  path: readonly string[] = [],
): readonly (readonly [path: readonly string[], object: JsonObject])[] {
  if (typeof json !== 'object' || json === null) return []
  const below = Object.entries(json).flatMap(([name, value]) => objectsOf(value, [...path, name]))
  return isJsonObject(json) ? [[path, json], ...below] : below
}

/** A copy with `value` at `path`. */
function changed(json: JsonObject, path: readonly string[], value: Json): JsonObject {
  const copy = JSON.parse(JSON.stringify(json))
  const last = path.at(-1) ?? ''
  let at = copy
  for (const name of path.slice(0, -1)) at = at[name]
  at[last] = value
  return copy
}

const parse = (file: JsonObject) => parseProviderPolicy(Buffer.from(JSON.stringify(file)))

function build({ kind, roots, ...changes }: Form) {
  const built = buildProviderEvidence(kind, changes)
  const all = Object.entries(built.policy.roots ?? {})
  const policy = {
    ...built.policy,
    roots: Object.fromEntries(all.filter(([name]) => roots.includes(name))),
  }
  return { bytes: writeProviderEvidence(built.evidence), policy }
}

describe.each(Object.keys(FORMS))('a policy for %s', (name) => {
  const form = FORMS[name]
  if (form === undefined) throw new Error('expected a form')
  const { bytes, policy } = build(form)
  const judge = async (file: JsonObject) =>
    requireChecks((await verifyProviderEvidence(bytes, parse(file), MADE_AT)).checks)

  it(`the evidence passes the policy for ${name}`, async () => {
    await expect(judge(policy)).resolves.toBeUndefined()
  })

  const leaves = leavesOf(policy).filter(([path]) => OTHERS[path] !== null)
  it.each(leaves)('another value of %s refuses the evidence', async (path, value) => {
    const other = changed(policy, path.split('.'), OTHERS[path] ?? otherOf(value))
    await expect(judge(other)).rejects.toThrow(ProviderEvidenceError)
  })
})

/** Names that a product of AMD, or a register of an enclave, stands for. */
const ONE_OF_MANY = /^(?:Genoa|Turin|)$/

/** The names that the parser knows at this place, from its refusal of another name. */
function namesAt(policy: JsonObject, path: readonly string[]): readonly string[] {
  try {
    parse(changed(policy, [...path, 'zz'], 1))
  } catch (fault) {
    if (!(fault instanceof PolicyError)) throw fault
    const [, names = ''] = / to be an object of (.+), without "zz"$/.exec(fault.message) ?? []
    return names.split(', ').filter((name) => !ONE_OF_MANY.test(name))
  }
  throw new Error(`expected a refusal of another member in ${path.join('.')}`)
}

it('the walk goes to each member that the parser knows', () => {
  const [known, tried] = [new Set<string>(), new Set<string>()]
  for (const form of Object.values(FORMS)) {
    const { policy } = build(form)
    // Roots are the same for all kinds of providers.
    const nameOf = (path: readonly string[]) =>
      path[0] === 'roots' ? path.join('.') : [form.kind.split(' ')[0], ...path].join('.')
    for (const [path, object] of objectsOf(policy)) {
      for (const name of Object.keys(object)) tried.add(nameOf([...path, name]))
      for (const name of namesAt(policy, path)) known.add(nameOf([...path, name]))
    }
  }
  expect(known.size).toBeGreaterThan(60)
  expect([...known].filter((path) => !tried.has(path))).toEqual([])
})
