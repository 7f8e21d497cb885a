import { gzipSync } from 'node:zlib'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { decodeDer } from '#attestation/nitro/der.ts'
import { hashConfigDocument } from '#attestation/providers/dstack/config-id.ts'
import {
  EVIDENCE_PATHS,
  type KeptResponse,
  type ProviderEvidence,
  type ProviderKind,
  providerNonce,
} from '#attestation/providers/evidence/evidence-document.ts'
import type { TdxCollateral } from '#attestation/providers/tdx/collateral.ts'
import { intelAnswersOf } from '#src/local/tee/intel-collateral.ts'
import {
  buildTinfoilAnswer,
  cmdlineOf,
  predicateOfBuild,
  tlsKeyItem,
} from '#src/local/tee/tinfoil-answer.ts'
import { generateKey, toPem, validityOf } from '../nitro-builder/certificate-builder.ts'
import { bitString, encodeDer, sequence } from '../nitro-builder/der-encoder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { buildDocument, PCR_VALUES, standardChain } from '../nitro-builder/document-builder.ts'
import {
  APP_COMPOSE,
  APP_ID,
  buildImage,
  COMPOSE_HASH,
  configId,
  registerOf,
  STANDARD_EVENTS,
  sha,
} from './dstack-builder.ts'
import { buildGpu, type GpuChange } from './gpu-builder.ts'
import { DEVELOPMENT_INTEL_ROOT } from './intel-pki.ts'
import {
  buildSigstoreBundle,
  DEVELOPMENT_SIGSTORE,
  type SigstoreChanges,
  statementOf,
} from './sigstore-builder.ts'
import { buildSnpList } from './snp-pki.ts'
import { buildSnp, SNP_MEASUREMENT, SNP_TCBS } from './snp-report-builder.ts'
import { buildTdxEvidence, MR_TD, type TdxChanges } from './tdx-builder.ts'

export const ORIGIN = 'https://provider.example'
export const TLS_KEY = 'c1'.repeat(32)
export const HPKE_KEY = 'c2'.repeat(32)
export const BLOCK_HASH = new Uint8Array(32).fill(0xb1)
export const NONCE = providerNonce(BLOCK_HASH, ORIGIN)
const NONCE_HEX = hex(NONCE)

/** Kinds, with the documents and the hardware that a kind has more than one of. */
export type BuiltKind =
  | 'tinfoil v2'
  | 'tinfoil v3 SNP'
  | 'tinfoil v3 TDX'
  | 'dstack'
  | 'aci'
  | 'nitro'

/** What a test can change, so that one rule is broken. */
export type EvidenceChanges = {
  /** In place of that of BLOCK_HASH and ORIGIN, for all kinds without a GPU. */
  readonly nonce?: Uint8Array
  /** Changes the answer's JSON before the hardware binds what it binds. */
  // biome-ignore lint/suspicious/noExplicitAny: a test breaks any member of the answer
  readonly bound?: (answer: any) => void
  /** Changes the answer's JSON after that. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly answer?: (answer: any) => void
  /** The document that MRCONFIGID states, of dstack and ACI services. */
  readonly configDocument?: string
  /** Changes what the hardware signs, of dstack, ACI and Nitro. */
  readonly signed?: (data: Uint8Array) => Uint8Array
  /** Changes the quote's platform and Intel's collateral. */
  readonly tdx?: Omit<TdxChanges, 'body'>
  /** Changes the report before it is signed. */
  readonly snp?: (report: Buffer) => void
  readonly build?: SigstoreChanges
  readonly predicate?: JsonObject
  readonly collateral?: (kept: readonly KeptResponse[]) => readonly KeptResponse[]
  readonly evidence?: Partial<ProviderEvidence>
  readonly policy?: Readonly<Record<string, Json | undefined>>
}

/** Evidence that every check accepts, with changes, and its policy as the file's JSON. */
export function buildProviderEvidence(
  built: BuiltKind,
  changes: EvidenceChanges = {},
): { readonly evidence: ProviderEvidence; readonly policy: JsonObject } {
  const { path, answer, collateral } = BUILDERS[built](changes)
  changes.answer?.(answer)
  const [kind = ''] = built.split(' ')
  return {
    evidence: {
      kind: kind as ProviderKind,
      origin: ORIGIN,
      nonce: changes.nonce ?? NONCE,
      fetchedAtMs: MADE_AT.getTime() - 60_000,
      block: { chainId: 1, number: 17, hash: BLOCK_HASH },
      responses: [kept(`${ORIGIN}${path}`, JSON.stringify(answer))],
      collateral: changes.collateral?.(collateral) ?? collateral,
      ...changes.evidence,
    },
    policy: policyOf(built, changes),
  }
}

/** The policy file that accepts the builder's evidence. */
function policyOf(built: BuiltKind, { policy }: EvidenceChanges): JsonObject {
  const [kind = ''] = built.split(' ')
  const members = {
    version: 1,
    kind,
    origins: [ORIGIN],
    roots: ROOTS,
    ...POLICIES[built],
    ...policy,
  }
  return JSON.parse(JSON.stringify(members))
}

const forNonce = (bytes: Buffer) => {
  bytes.set(NONCE, 4)
  return bytes
}

/** Made once: the chain of each build has another root. */
const gpu = buildGpu({ evidence: forNonce })

const ROOTS = {
  intel: [hex(DEVELOPMENT_INTEL_ROOT)],
  amd: { Milan: (buildSnp().policy.roots?.Milan ?? []).map(hex) },
  nvidia: (gpu.policy.roots ?? []).map(hex),
  aws: [hex(standardChain.rootSha256)],
  sigstore: {
    authorities: DEVELOPMENT_SIGSTORE.authorities.map(base64),
    logs: DEVELOPMENT_SIGSTORE.logs.map(base64),
    certificate_logs: DEVELOPMENT_SIGSTORE.certificateLogs.map(base64),
  },
}

const release = { repository: 'example/model', refs: ['refs/tags/v1.0.0'] }
const snp = { floors: { Milan: SNP_TCBS.Milan } }
const imageSet = buildImage().measurements[0]
const application = {
  compose_hashes: [hex(COMPOSE_HASH)],
  app_ids: [hex(APP_ID)],
  images: [
    {
      checksums: Buffer.from(buildImage().checksums).toString(),
      metadata: Buffer.from(buildImage().metadata).toString(),
      measurements: [
        {
          mrtd: hex(imageSet?.mrTd),
          rtmr0: hex(imageSet?.rtmr0),
          rtmr1: hex(imageSet?.rtmr1),
          rtmr2: hex(imageSet?.rtmr2),
        },
      ],
    },
  ],
  tdx: { evaluation_number_min: 18 },
}
export const RTMRS = [0, 1, 2].map((index) => new Uint8Array(48).fill(0xa0 + index))
const platforms = [{ mrtd: hex(MR_TD), rtmr0: hex(RTMRS[0]) }]
export const ROOT_HASH = 'd2'.repeat(32)
export const BOOT_CONFIGURATION = { chain_id: 1, tls_public_keys: [TLS_KEY] }

const POLICIES: Readonly<Record<BuiltKind, object>> = {
  'tinfoil v2': { release, snp, accepts_no_nonce: true },
  'tinfoil v3 SNP': { release, snp, weights: [ROOT_HASH], gpu: 'required' },
  'tinfoil v3 TDX': {
    release,
    tdx: { evaluation_number_min: 18, platforms },
    weights: [ROOT_HASH],
  },
  dstack: application,
  aci: application,
  nitro: {
    measurements: [{ PCR0: hex(PCR_VALUES.get(0)) }],
    configurations: [hex(digestOf(BOOT_CONFIGURATION))],
  },
}

type Built = {
  readonly path: string
  // biome-ignore lint/suspicious/noExplicitAny: a test breaks any member of the answer
  readonly answer: any
  readonly collateral: readonly KeptResponse[]
}

const BUILDERS: Readonly<Record<BuiltKind, (changes: EvidenceChanges) => Built>> = {
  'tinfoil v2': (changes) => {
    const reportData = Buffer.concat([Buffer.from(TLS_KEY, 'hex'), Buffer.from(HPKE_KEY, 'hex')])
    const { report, chain } = snpOf(reportData, changes)
    const body = base64(gzipSync(report))
    return {
      path: EVIDENCE_PATHS.tinfoil,
      answer: { format: 'https://tinfoil.sh/predicate/sev-snp-guest/v2', body },
      collateral: [...chain, buildOf(changes)],
    }
  },
  'tinfoil v3 SNP': (changes) => {
    return version3('sev-snp-report', [gpuItem()], changes, (reportData) => {
      const { report, chain } = snpOf(reportData, changes)
      return { report, collateral: [...chain, buildOf(changes)] }
    })
  },
  'tinfoil v3 TDX': (changes) =>
    version3('tdx-quote', [], changes, (reportData) => {
      const { quote, intel } = tdxOf(reportData, [...RTMRS, NO_RTMR], changes)
      return { report: quote, collateral: [...intel, buildOf(changes)] }
    }),
  dstack: (changes) => {
    const answer: Record<string, unknown> = {
      ...applicationAnswer(changes),
      signing_address: `0x${'ad'.repeat(20)}`,
      tls_cert_fingerprint: TLS_KEY,
    }
    changes.bound?.(answer)
    const bound = Buffer.from(`${'ad'.repeat(20)}${answer.tls_cert_fingerprint}`, 'hex')
    const reportData = Buffer.concat([sha('sha256', bound), changes.nonce ?? NONCE])
    const { quote, intel } = tdxOf(reportData, MACHINE, changes)
    return {
      path: '/v1/attestation/report',
      answer: { gateway_attestation: { ...answer, intel_quote: hex(quote) } },
      collateral: intel,
    }
  },
  aci: (changes) => {
    const keyset = {
      not_after: MADE_AT.getTime() / 1000 + 3_600,
      tls_public_keys: [{ spki_sha256: TLS_KEY, domain: 'provider.example' }],
    }
    changes.bound?.(keyset)
    const bytes = Buffer.from(JSON.stringify(keyset))
    const digest = `sha256:${hex(sha('sha256', bytes))}`
    const statement = `{"keyset_digest":"${digest}","nonce":"${hex(changes.nonce ?? NONCE)}","purpose":"aci.report_data.v1"}`
    const reportData = Buffer.concat([sha('sha256', Buffer.from(statement)), Buffer.alloc(32)])
    const { quote, intel } = tdxOf(reportData, MACHINE, changes)
    return {
      path: '/v1/aci/attestation',
      answer: {
        api_version: 'aci/1',
        workload_keyset_digest: digest,
        attestation: {
          tee_type: 'tdx',
          workload_keyset_b64: base64(bytes),
          evidence: { ...applicationAnswer(changes), quote: hex(quote) },
        },
      },
      collateral: intel,
    }
  },
  nitro: (changes) => {
    const configuration = { ...BOOT_CONFIGURATION }
    changes.bound?.(configuration)
    const fields = {
      nonce: changes.nonce ?? NONCE,
      user_data: changes.signed?.(digestOf(configuration)) ?? digestOf(configuration),
      public_key: Buffer.alloc(65, 4),
    }
    return {
      path: '/v1/attestation',
      answer: {
        attestation: base64(buildDocument({ fields })),
        boot_configuration: configuration,
      },
      collateral: [],
    }
  },
}

const MACHINE = [0, 1, 2, 3].map((index) => registerOf(STANDARD_EVENTS, index))

function applicationAnswer({ configDocument: mr_config }: EvidenceChanges) {
  return {
    event_log: JSON.stringify(STANDARD_EVENTS),
    info: { tcb_info: { app_compose: APP_COMPOSE } },
    vm_config: JSON.stringify({ cpu_count: 2, mr_config }),
  }
}

function version3(
  format: 'tdx-quote' | 'sev-snp-report',
  devices: readonly JsonObject[],
  changes: EvidenceChanges,
  attest: (reportData: Uint8Array) => {
    readonly report: Uint8Array
    readonly collateral: readonly KeptResponse[]
  },
): Built {
  const hpke = { id: 'hpke', format: 'https://tinfoil.sh/key/x25519-hpke/v1', data: HPKE_KEY }
  const bound = { items: [tlsKeyItem(TLS_KEY), hpke], devices }
  changes.bound?.(bound)
  let collateral: readonly KeptResponse[] = []
  const answer = buildTinfoilAnswer({
    nonce: changes.nonce ?? NONCE,
    format,
    bound,
    collateral: [],
    attest: (reportData) => {
      const attested = attest(reportData)
      collateral = attested.collateral
      return attested.report
    },
  })
  return { path: EVIDENCE_PATHS.tinfoil, answer, collateral }
}

/** A report of the development ARK of Milan, and its certificates as AMD serves them. */
function snpOf(reportData: Uint8Array, { snp }: EvidenceChanges) {
  const { evidence } = buildSnp({
    report: (report) => {
      report.set(reportData, 0x50)
      snp?.(report)
    },
  })
  const amd = 'https://kdsintf.amd.com/vcek/v1/Milan/'
  const chain = [
    kept(`${amd}cert_chain`, toPem(evidence.ask, evidence.ark)),
    kept(`${amd}${'c1'.repeat(64)}?blSPL=4`, evidence.vek),
    kept(`${amd}crl`, list),
  ]
  return { report: evidence.report, chain }
}

const list = buildSnpList()

/** A quote of the development root of Intel, and its collateral as Intel serves it. */
function tdxOf(
  reportData: Uint8Array,
  registers: readonly Uint8Array[],
  { configDocument, signed = (data) => data, tdx }: EvidenceChanges,
) {
  const { quote, collateral } = buildTdxEvidence({
    ...tdx,
    body: (body) => {
      body.set(signed(reportData), 520)
      for (const [index, value] of registers.entries()) body.set(value, 328 + 48 * index)
      if (configDocument !== undefined)
        body.set(configId(3, hashConfigDocument(Buffer.from(configDocument))), 184)
    },
  })
  return { quote, intel: collateral ? intelAnswers(collateral) : [] }
}

/** Collateral as Intel's service gives it. */
export function intelAnswers(collateral: TdxCollateral): readonly KeptResponse[] {
  return intelAnswersOf(collateral).map(({ url, body, headers }) => kept(url, body, headers))
}

const switchKey = generateKey()

/** A switch below the GPU's root, as an item of version 3. */
export function switchItem() {
  const item = gpuItem(deviceOf({ device: 'LS_10 A01 FSP FMC LF', key: switchKey }))
  return { ...item, id: 'switch-0', kind: 'nvswitch' }
}

/** n of P-384 (SEC 2, secp384r1). */
const P384_ORDER = BigInt(
  '0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973',
)

/** The same GPU with the other valid signature (r, n − s) of its certificate. */
export function twinGpuItem() {
  const [leaf = '', ...above] = gpu.evidence.certificates.split(/(?=-----BEGIN)/)
  const der = decodeDer(new Uint8Array(Buffer.from(leaf.replace(/-----[^-]+-----/g, ''), 'base64')))
  const [signed, algorithm, signature] = der.children
  const pair = decodeDer(new Uint8Array(signature?.content.subarray(1) ?? []))
  const [r, s] = pair.children.map(({ content }) => BigInt(`0x${hex(content)}`))
  const twin = sequence(
    signed?.encoding ?? new Uint8Array(),
    algorithm?.encoding ?? new Uint8Array(),
    bitString(sequence(unsigned(r ?? 0n), unsigned(P384_ORDER - (s ?? 0n)))),
  )
  const certificates = [toPem(twin), ...above].join('')
  return { ...gpuItem({ evidence: gpu.evidence.evidence, certificates }), id: 'gpu-1' }
}

function unsigned(value: bigint): Uint8Array {
  const text = value.toString(16)
  const bytes = Buffer.from(text.padStart(text.length + (text.length % 2), '0'), 'hex')
  const isHigh = (bytes[0] ?? 0) >= 0x80
  return encodeDer(0x02, new Uint8Array(isHigh ? Buffer.concat([Buffer.of(0), bytes]) : bytes))
}

/** A GPU whose certificate ends at this time. */
export function gpuItemUntil(end: Date) {
  return gpuItem(deviceOf({ certificates: { 4: { validity: validityOf(MADE_AT, end) } } }))
}

/** A device under the root that the policy trusts. */
function deviceOf(change: GpuChange) {
  const { evidence, certificates } = buildGpu({ evidence: forNonce, ...change }).evidence
  const [below, root] = [certificates, gpu.evidence.certificates].map((pem) =>
    pem.split(/(?=-----BEGIN)/),
  )
  const chain = [...(below?.slice(0, -1) ?? []), root?.at(-1)].join('')
  return { evidence, certificates: chain }
}

/** A GPU that signed evidence for the nonce, as an item of version 3. */
function gpuItem({ evidence, certificates } = gpu.evidence) {
  return {
    id: 'gpu-0',
    kind: 'gpu',
    vendor: 'nvidia',
    format: 'https://tinfoil.sh/format/nvidia-gpu-evidence/v1',
    evidence: {
      arch: 'HOPPER',
      certificate: base64(Buffer.from(certificates)),
      evidence: base64(evidence),
      nonce: NONCE_HEX,
    },
  }
}

export const MODEL_CONFIG = `cpus: 16

models:
  - name: "example-31b"
    repo: "example/model-31B@fb9ae262"
    # the disk
    mpk: "${ROOT_HASH}_62578688000_421c697b-8a62-59e2-9085-819a35012c0b"

containers:
  - name: "example"
`

/** What a signed build states of a configuration. */
export function predicateOf(config: string, changed: JsonObject = {}): JsonObject {
  const [, rtmr1 = NO_RTMR, rtmr2 = NO_RTMR] = RTMRS
  const measurements = { snp: SNP_MEASUREMENT, rtmr1, rtmr2 }
  return {
    ...predicateOfBuild({ config, cmdline: cmdlineOf(config), measurements }),
    ...changed,
  }
}

const NO_RTMR = new Uint8Array(48)

/** The build's bundle as GitHub serves it. */
function buildOf({ build, predicate = predicateOf(MODEL_CONFIG) }: EvidenceChanges): KeptResponse {
  const bundle = buildSigstoreBundle({ statement: statementOf(predicate), ...build })
  const url = `https://api.github.com/repos/example/model/attestations/sha256:${'ab'.repeat(32)}`
  return kept(url, JSON.stringify({ attestations: [{ bundle }] }))
}

/** An answer with status 200. */
export function kept(
  url: string,
  body: Uint8Array | string,
  headers: Readonly<Record<string, string>> = {},
): KeptResponse {
  const bytes = new Uint8Array(Buffer.from(body))
  return { url, status: 200, headers: new Map(Object.entries(headers)), body: bytes }
}

export function digestOf(configuration: JsonObject): Uint8Array {
  return sha('sha256', Buffer.from(canonicalizeJson(configuration)))
}

function hex(bytes: Uint8Array = new Uint8Array()): string {
  return Buffer.from(bytes).toString('hex')
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}
