import type { ProviderEvidenceCode } from '#attestation/providers/evidence/evidence-codes.ts'
import type { LookedUpBlock } from '#attestation/providers/evidence/evidence-document.ts'
import { casesOf, nearly } from '../case-table.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { APP_ID, COMPOSE_HASH } from '../provider-builder/dstack-builder.ts'
import {
  BOOT_CONFIGURATION,
  type BuiltKind,
  digestOf,
  type EvidenceChanges,
  kept,
  MODEL_CONFIG,
  NONCE,
  ORIGIN,
  predicateOf,
  switchItem,
  twinGpuItem,
} from '../provider-builder/evidence-builder.ts'

type EvidenceCode = ProviderEvidenceCode | 'tcb_info_malformed' | 'pem_malformed'
type EvidenceCase = EvidenceChanges & {
  readonly kind: BuiltKind
  /** The block of the nonce, if a chain was asked. */
  readonly lookedUp?: LookedUpBlock
}

const HOUR_MS = 3_600_000
const atMs = MADE_AT.getTime()
const other = new Uint8Array(32).fill(9)
const otherHex = '09'.repeat(32)
const nearNonce = nearly(NONCE)
const nearDigest = Buffer.from(nearly(digestOf(BOOT_CONFIGURATION))).toString('hex')
const blockSeconds = atMs / 1000
const blockAt = (timestamp: number): LookedUpBlock => ({
  chainId: 1,
  block: { hash: `0x${'b1'.repeat(32)}`, timestamp },
})
const broken = (path: string) => ({
  collateral: (all: readonly ReturnType<typeof kept>[]) =>
    all.map((one) => (one.url.includes(path) ? kept(one.url, 'broken') : one)),
})

type Device = { readonly evidence: { evidence: string } }
function spoil<Item extends Device>(item: Item): Item {
  const bytes = Buffer.from(item.evidence.evidence, 'base64')
  item.evidence.evidence = Buffer.from(nearly(bytes)).toString('base64')
  return item
}

const CONFIG_DOCUMENT = JSON.stringify({
  app_id: Buffer.from(APP_ID).toString('hex'),
  compose_hash: Buffer.from(COMPOSE_HASH).toString('hex'),
  version: 3,
})
const MILAN = { Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 } }

const of =
  (kind: BuiltKind) =>
  (changes: Omit<EvidenceCase, 'kind'>): EvidenceCase => ({ ...changes, kind })
const [nitro, dstack, aci] = [of('nitro'), of('dstack'), of('aci')]
const [tinfoil2, tinfoilSnp] = [of('tinfoil v2'), of('tinfoil v3 SNP')]
const tinfoilTdx = of('tinfoil v3 TDX')

/** Evidence that breaks one rule, by the code of the refusal. */
export const evidenceRefusals = casesOf<'code', EvidenceCode, EvidenceCase>('code', {
  provider_kind: { 'evidence of another kind': dstack({ policy: { kind: 'aci' } }) },
  provider_origin: {
    'evidence of another origin': dstack({
      policy: { origins: ['https://another.example', 'https://provider.example:8443'] },
    }),
  },
  block_missing: {
    'a random nonce where a block is needed': nitro({
      evidence: { block: null },
      policy: { needs_block: true },
    }),
    'an answer without a nonce where a block is needed': tinfoil2({
      policy: { needs_block: true },
    }),
  },
  block_nonce_mismatch: {
    'a nonce that differs in its last bit': nitro({
      nonce: nearNonce,
      evidence: { nonce: nearNonce },
    }),
    'a nonce of another block': nitro({
      evidence: { block: { chainId: 1, number: 17, hash: other } },
    }),
  },
  block_not_on_chain: {
    'a block that the chain does not have': nitro({ lookedUp: { chainId: 1, block: null } }),
    'another block of the number on the chain': nitro({
      lookedUp: { chainId: 1, block: { hash: `0x${otherHex}`, timestamp: blockSeconds } },
    }),
  },
  evidence_from_future: {
    'evidence that is fetched later': nitro({ evidence: { fetchedAtMs: atMs + 300_001 } }),
    'a block that is later': nitro({ lookedUp: blockAt(blockSeconds + 301) }),
  },
  evidence_too_old: {
    'evidence that is older than a day': nitro({
      evidence: { fetchedAtMs: atMs - 24 * HOUR_MS - 1 },
    }),
    'a block that is older than a day, whatever the collector states': dstack({
      lookedUp: blockAt(blockSeconds - 86_401),
    }),
  },
  answer_missing: {
    'no answer': tinfoil2({ evidence: { responses: [] } }),
    'an answer from another path': aci({
      evidence: { responses: [kept(`${ORIGIN}/v1/attestation/report`, '{}')] },
    }),
  },
  answer_status: {
    'an error': dstack({
      evidence: {
        responses: [{ ...kept(`${ORIGIN}/v1/attestation/report`, '{}'), status: 503 }],
      },
    }),
  },
  answer_malformed: {
    'version 2 that is no gzip': tinfoil2({
      answer: (answer) => Object.assign(answer, { body: 'AAAA' }),
    }),
    'version 2 with another member': tinfoil2({
      answer: (answer) => Object.assign(answer, { more: 1 }),
    }),
    'version 3 with another member': tinfoilTdx({
      answer: (answer) => Object.assign(answer, { domain: 'provider.example' }),
    }),
    'version 3 with two keys of one id': tinfoilTdx({
      bound: (keys) => keys.items.push(keys.items[0]),
    }),
    'version 3 with a TLS key of another format': tinfoilTdx({
      bound: (keys) => Object.assign(keys.items[0], { format: 'https://tinfoil.sh/key/spki/v1' }),
    }),
    'a report without an event log': dstack({
      answer: ({ gateway_attestation: report }) => delete report.event_log,
    }),
    'an address of another length': dstack({
      answer: ({ gateway_attestation: report }) => (report.signing_address = '0xadad'),
    }),
    'another version of ACI': aci({
      answer: (answer) => Object.assign(answer, { api_version: 'aci/2' }),
    }),
    'a document without its configuration': nitro({
      answer: (answer) => delete answer.boot_configuration,
    }),
  },
  challenge_mismatch: {
    'a document for another nonce': tinfoilTdx({ evidence: { nonce: nearNonce, block: null } }),
    'a report for another nonce': dstack({ evidence: { nonce: nearNonce, block: null } }),
    'an enclave for another nonce': nitro({ evidence: { nonce: nearNonce, block: null } }),
  },
  collateral_malformed: {
    'a build that is no JSON': tinfoil2({ ...broken('/attestations/') }),
  },
  pem_malformed: {
    'a chain of AMD that is no PEM': tinfoil2({ ...broken('/cert_chain') }),
  },
  tcb_info_malformed: {
    'a TCB info without its signature': dstack({ ...broken('/v4/tcb') }),
  },
  tee_not_accepted: {
    'TDX where SEV-SNP is accepted': tinfoilTdx({
      policy: { weights: undefined, tdx: undefined, snp: { floors: MILAN } },
    }),
  },
  tls_key_missing: {
    'a document without a TLS key': tinfoilTdx({ bound: (keys) => keys.items.shift() }),
    'a report without a fingerprint': dstack({
      bound: (report) => Object.assign(report, { tls_cert_fingerprint: null }),
    }),
    'a keyset for another host': aci({
      bound: (keyset) => (keyset.tls_public_keys[0].domain = 'example'),
    }),
    'an enclave that has a notary alone': nitro({
      bound: (configuration) => delete configuration.tls_public_keys,
    }),
  },
  key_binding_mismatch: {
    'a signed digest of the keys that differs in its last bit': dstack({
      signed: (data) => nearly(data, 31),
    }),
    'a signed digest of the keyset that differs in its last bit': aci({
      signed: (data) => nearly(data, 31),
    }),
    'a document with another key': tinfoilTdx({
      answer: (answer) => {
        const section = Buffer.from(answer.crypto_material, 'base64').toString()
        const changed = section.replaceAll('c1c1', '0909')
        answer.crypto_material = Buffer.from(changed).toString('base64')
      },
    }),
    'a report with another key': dstack({
      answer: ({ gateway_attestation: one }) => (one.tls_cert_fingerprint = otherHex),
    }),
    'a keyset for another nonce': aci({ evidence: { nonce: nearNonce, block: null } }),
  },
  keyset_digest_mismatch: {
    'another digest than the keyset has': aci({
      answer: (answer) => Object.assign(answer, { workload_keyset_digest: `sha256:${otherHex}` }),
    }),
  },
  keyset_expired: {
    'a keyset that ends now': aci({
      bound: (keyset) => Object.assign(keyset, { not_after: Math.floor(atMs / 1000) }),
    }),
  },
  configuration_mismatch: {
    'a signed digest that differs in its last bit': nitro({ signed: nearly }),
    'another configuration than the enclave has': nitro({
      answer: (answer) => Object.assign(answer.boot_configuration, { chain_id: 2 }),
    }),
  },
  configuration_not_accepted: {
    'a configuration that the policy does not list': nitro({
      policy: { configurations: [nearDigest] },
    }),
  },
  build_malformed: {
    'a signed build without measurements': tinfoil2({ predicate: { config: '' } }),
  },
  gpu_missing: {
    'no GPU where one is required': tinfoilTdx({ policy: { gpu: 'required' } }),
    'a switch where a GPU is required': tinfoilSnp({
      bound: (keys) => keys.devices.splice(0, 1, switchItem()),
    }),
  },
  gpu_malformed: {
    'a device of another maker': tinfoilSnp({
      bound: (keys) => Object.assign(keys.devices[0], { format: 'other' }),
    }),
  },
  gpu_refused: {
    'a GPU whose evidence was changed': tinfoilSnp({ bound: ({ devices }) => spoil(devices[0]) }),
    'a switch whose evidence was changed, behind a GPU': tinfoilSnp({
      bound: ({ devices }) => devices.push(spoil(switchItem())),
    }),
  },
  gpu_repeated: {
    'one GPU as two, by the twin of its certificate': tinfoilSnp({
      bound: ({ devices }) => devices.push(twinGpuItem()),
    }),
    'the evidence of one GPU as that of two': tinfoilSnp({
      bound: ({ devices }) => devices.push({ ...devices[0], id: 'gpu-1' }),
    }),
  },
  weights_unknown: {
    'a machine without weights': tinfoilTdx({ predicate: predicateOf('cpus: 8\n') }),
    'weights that any firmware could state': tinfoilTdx({
      policy: { tdx: { evaluation_number_min: 18, platforms: 'any' } },
    }),
  },
  weights_not_accepted: {
    'a machine with other weights': tinfoilTdx({ policy: { weights: [otherHex] } }),
    'a machine with other weights beside accepted ones': tinfoilTdx({
      predicate: predicateOf(
        MODEL_CONFIG.replace(
          '\ncontainers',
          `  - name: "b"\n    repo: "b/b@1"\n    mpk: "${otherHex}_1_27ee073f-136c-5855-a1a3-1fdc293ec0bb"\n\ncontainers`,
        ),
      ),
    }),
  },
})

export const evidenceAcceptances: readonly (EvidenceCase & { readonly name: string })[] = [
  { name: 'version 2 of Tinfoil', kind: 'tinfoil v2' },
  { name: 'version 3 of Tinfoil on SEV-SNP with a GPU and weights', kind: 'tinfoil v3 SNP' },
  {
    bound: ({ devices }) => devices.push(switchItem()),
    name: 'a GPU beside a switch',
    kind: 'tinfoil v3 SNP',
  },
  { name: 'version 3 of Tinfoil on TDX with weights', kind: 'tinfoil v3 TDX' },
  { name: 'a service on dstack', kind: 'dstack' },
  { name: 'an ACI service', kind: 'aci' },
  { name: 'another Affidavit', kind: 'nitro' },
  { evidence: { block: null }, name: 'a random nonce', kind: 'nitro' },
  { lookedUp: blockAt(blockSeconds - 86_400), name: 'a block that is a day old', kind: 'aci' },
  {
    lookedUp: blockAt(blockSeconds - 60),
    evidence: { fetchedAtMs: 1 },
    name: 'a block of a minute before, and a collector that states an early time',
    kind: 'nitro',
  },
  {
    evidence: { fetchedAtMs: atMs - 24 * HOUR_MS },
    name: 'evidence that is a day old',
    kind: 'dstack',
  },
  {
    evidence: { fetchedAtMs: atMs + 300_000 },
    name: 'a clock that is five minutes ahead',
    kind: 'dstack',
  },
  {
    answer: (answer) =>
      Object.assign(answer, answer.gateway_attestation, { gateway_attestation: undefined }),
    name: 'a report that is not inside gateway_attestation',
    kind: 'dstack',
  },
  {
    configDocument: CONFIG_DOCUMENT,
    bound: (answer) => Object.assign(answer.info, { vm_config: JSON.parse(answer.vm_config) }),
    name: 'a service whose MRCONFIGID states a document',
    kind: 'dstack',
  },
  {
    configDocument: CONFIG_DOCUMENT,
    name: 'an ACI service whose MRCONFIGID states a document',
    kind: 'aci',
  },
  {
    bound: (answer) => Object.assign(answer.info, { tcb_info: '' }),
    name: 'a service that gives no description of its TCB',
    kind: 'dstack',
  },
  {
    bound: (keyset) => delete keyset.tls_public_keys[0].domain,
    name: 'a keyset for any host',
    kind: 'aci',
  },
  {
    policy: {
      release: { repository: 'example/model', refs: ['refs/tags/*'] },
      tdx: { evaluation_number_min: 18, platforms: 'any' },
      weights: undefined,
    },
    name: 'any tag of the repository, and any firmware',
    kind: 'tinfoil v3 TDX',
  },
]
