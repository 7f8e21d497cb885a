import type { ProviderEvidenceCode } from '#attestation/providers/evidence/evidence-codes.ts'
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
} from '../provider-builder/evidence-builder.ts'

type EvidenceCode = ProviderEvidenceCode | 'tcb_info_malformed' | 'pem_malformed'
type EvidenceCase = EvidenceChanges & { readonly kind: BuiltKind }

const HOUR_MS = 3_600_000
const atMs = MADE_AT.getTime()
const other = new Uint8Array(32).fill(9)
const otherHex = '09'.repeat(32)
const nearNonce = nearly(NONCE)
const nearDigest = Buffer.from(nearly(digestOf(BOOT_CONFIGURATION))).toString('hex')
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

/** Evidence that breaks one rule, by the code of the refusal. */
export const evidenceRefusals = casesOf<'code', EvidenceCode, EvidenceCase>('code', {
  provider_kind: { 'evidence of another kind': { policy: { kind: 'aci' }, kind: 'dstack' } },
  provider_origin: {
    'evidence of another origin': {
      policy: { origins: ['https://another.example', 'https://provider.example:8443'] },
      kind: 'dstack',
    },
  },
  block_missing: {
    'a random nonce where a block is needed': {
      evidence: { block: null },
      policy: { needs_block: true },
      kind: 'nitro',
    },
    'an answer without a nonce where a block is needed': {
      policy: { needs_block: true },
      kind: 'tinfoil v2',
    },
  },
  block_nonce_mismatch: {
    'a nonce that differs in its last bit': {
      kind: 'nitro',
      nonce: nearNonce,
      evidence: { nonce: nearNonce },
    },
    'a nonce of another block': {
      evidence: { block: { chainId: 1, number: 17, hash: other } },
      kind: 'nitro',
    },
  },
  evidence_from_future: {
    'evidence that is fetched later': { evidence: { fetchedAtMs: atMs + 300_001 }, kind: 'nitro' },
  },
  evidence_too_old: {
    'evidence that is older than a day': {
      evidence: { fetchedAtMs: atMs - 24 * HOUR_MS - 1 },
      kind: 'nitro',
    },
  },
  answer_missing: {
    'no answer': { evidence: { responses: [] }, kind: 'tinfoil v2' },
    'an answer from another path': {
      evidence: { responses: [kept(`${ORIGIN}/v1/attestation/report`, '{}')] },
      kind: 'aci',
    },
  },
  answer_status: {
    'an error': {
      evidence: {
        responses: [{ ...kept(`${ORIGIN}/v1/attestation/report`, '{}'), status: 503 }],
      },
      kind: 'dstack',
    },
  },
  answer_malformed: {
    'version 2 that is no gzip': {
      answer: (answer) => Object.assign(answer, { body: 'AAAA' }),
      kind: 'tinfoil v2',
    },
    'version 2 with another member': {
      answer: (answer) => Object.assign(answer, { more: 1 }),
      kind: 'tinfoil v2',
    },
    'version 3 with another member': {
      answer: (answer) => Object.assign(answer, { domain: 'provider.example' }),
      kind: 'tinfoil v3 TDX',
    },
    'version 3 with two keys of one id': {
      bound: (keys) => keys.items.push(keys.items[0]),
      kind: 'tinfoil v3 TDX',
    },
    'version 3 with a TLS key of another format': {
      bound: (keys) => Object.assign(keys.items[0], { format: 'https://tinfoil.sh/key/spki/v1' }),
      kind: 'tinfoil v3 TDX',
    },
    'a report without an event log': {
      answer: ({ gateway_attestation: report }) => delete report.event_log,
      kind: 'dstack',
    },
    'an address of another length': {
      answer: ({ gateway_attestation: report }) => (report.signing_address = '0xadad'),
      kind: 'dstack',
    },
    'another version of ACI': {
      answer: (answer) => Object.assign(answer, { api_version: 'aci/2' }),
      kind: 'aci',
    },
    'a document without its configuration': {
      answer: (answer) => delete answer.boot_configuration,
      kind: 'nitro',
    },
  },
  challenge_mismatch: {
    'a document for another nonce': {
      evidence: { nonce: nearNonce, block: null },
      kind: 'tinfoil v3 TDX',
    },
    'a report for another nonce': { evidence: { nonce: nearNonce, block: null }, kind: 'dstack' },
    'an enclave for another nonce': { evidence: { nonce: nearNonce, block: null }, kind: 'nitro' },
  },
  collateral_malformed: {
    'a build that is no JSON': { ...broken('/attestations/'), kind: 'tinfoil v2' },
  },
  pem_malformed: {
    'a chain of AMD that is no PEM': { ...broken('/cert_chain'), kind: 'tinfoil v2' },
  },
  tcb_info_malformed: {
    'a TCB info without its signature': { ...broken('/v4/tcb'), kind: 'dstack' },
  },
  tee_not_accepted: {
    'TDX where SEV-SNP is accepted': {
      policy: { weights: undefined, tdx: undefined, snp: { floors: MILAN } },
      kind: 'tinfoil v3 TDX',
    },
  },
  tls_key_missing: {
    'a document without a TLS key': { bound: (keys) => keys.items.shift(), kind: 'tinfoil v3 TDX' },
    'a report without a fingerprint': {
      bound: (report) => Object.assign(report, { tls_cert_fingerprint: null }),
      kind: 'dstack',
    },
    'a keyset for another host': {
      bound: (keyset) => (keyset.tls_public_keys[0].domain = 'example'),
      kind: 'aci',
    },
    'an enclave that has a notary alone': {
      bound: (configuration) => delete configuration.tls_public_keys,
      kind: 'nitro',
    },
  },
  key_binding_mismatch: {
    'a signed digest of the keys that differs in its last bit': {
      kind: 'dstack',
      signed: (data) => nearly(data, 31),
    },
    'a signed digest of the keyset that differs in its last bit': {
      kind: 'aci',
      signed: (data) => nearly(data, 31),
    },
    'a document with another key': {
      answer: (answer) => {
        const section = Buffer.from(answer.crypto_material, 'base64').toString()
        const changed = section.replaceAll('c1c1', '0909')
        answer.crypto_material = Buffer.from(changed).toString('base64')
      },
      kind: 'tinfoil v3 TDX',
    },
    'a report with another key': {
      answer: ({ gateway_attestation: one }) => (one.tls_cert_fingerprint = otherHex),
      kind: 'dstack',
    },
    'a keyset for another nonce': { evidence: { nonce: nearNonce, block: null }, kind: 'aci' },
  },
  keyset_digest_mismatch: {
    'another digest than the keyset has': {
      answer: (answer) => Object.assign(answer, { workload_keyset_digest: `sha256:${otherHex}` }),
      kind: 'aci',
    },
  },
  keyset_expired: {
    'a keyset that ends now': {
      bound: (keyset) => Object.assign(keyset, { not_after: Math.floor(atMs / 1000) }),
      kind: 'aci',
    },
  },
  configuration_mismatch: {
    'a signed digest that differs in its last bit': { kind: 'nitro', signed: nearly },
    'another configuration than the enclave has': {
      answer: (answer) => Object.assign(answer.boot_configuration, { chain_id: 2 }),
      kind: 'nitro',
    },
  },
  configuration_not_accepted: {
    'a configuration that the policy does not list': {
      policy: { configurations: [nearDigest] },
      kind: 'nitro',
    },
  },
  build_malformed: {
    'a signed build without measurements': { predicate: { config: '' }, kind: 'tinfoil v2' },
  },
  gpu_missing: {
    'no GPU where one is required': { policy: { gpu: 'required' }, kind: 'tinfoil v3 TDX' },
    'a switch where a GPU is required': {
      bound: (keys) => keys.devices.splice(0, 1, switchItem()),
      kind: 'tinfoil v3 SNP',
    },
  },
  gpu_malformed: {
    'a device of another maker': {
      bound: (keys) => Object.assign(keys.devices[0], { format: 'other' }),
      kind: 'tinfoil v3 SNP',
    },
  },
  gpu_refused: {
    'a GPU whose evidence was changed': {
      bound: ({ devices }) => spoil(devices[0]),
      kind: 'tinfoil v3 SNP',
    },
    'a switch whose evidence was changed, behind a GPU': {
      bound: ({ devices }) => devices.push(spoil(switchItem())),
      kind: 'tinfoil v3 SNP',
    },
  },
  gpu_repeated: {
    'the evidence of one GPU as that of two': {
      bound: ({ devices }) => devices.push({ ...devices[0], id: 'gpu-1' }),
      kind: 'tinfoil v3 SNP',
    },
  },
  weights_unknown: {
    'a machine without weights': { predicate: predicateOf('cpus: 8\n'), kind: 'tinfoil v3 TDX' },
    'weights that any firmware could state': {
      policy: { tdx: { platforms: 'any' } },
      kind: 'tinfoil v3 TDX',
    },
  },
  weights_not_accepted: {
    'a machine with other weights': { policy: { weights: [otherHex] }, kind: 'tinfoil v3 TDX' },
    'a machine with other weights beside accepted ones': {
      predicate: predicateOf(
        MODEL_CONFIG.replace(
          '\ncontainers',
          `  - name: "b"\n    repo: "b/b@1"\n    mpk: "${otherHex}_1_27ee073f-136c-5855-a1a3-1fdc293ec0bb"\n\ncontainers`,
        ),
      ),
      kind: 'tinfoil v3 TDX',
    },
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
      tdx: { platforms: 'any' },
      weights: undefined,
    },
    name: 'any tag of the repository, and any firmware',
    kind: 'tinfoil v3 TDX',
  },
]
