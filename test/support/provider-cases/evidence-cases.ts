import type { ProviderEvidenceCode } from '#attestation/providers/evidence/evidence-codes.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { APP_ID, COMPOSE_HASH } from '../provider-builder/dstack-builder.ts'
import {
  type BuiltKind,
  type EvidenceChanges,
  kept,
  MODEL_CONFIG,
  ORIGIN,
  predicateOf,
  switchItem,
} from '../provider-builder/evidence-builder.ts'

/** Evidence that breaks one rule, and the code of its refusal. */
export type EvidenceRefusal = EvidenceAcceptance & {
  readonly code: ProviderEvidenceCode | 'tcb_info_malformed' | 'pem_malformed'
}

/** Evidence at the edge of a rule that is still accepted. */
export type EvidenceAcceptance = {
  readonly name: string
  readonly kind: BuiltKind
  readonly changes?: EvidenceChanges
}

const HOUR_MS = 3_600_000
const atMs = MADE_AT.getTime()
const other = new Uint8Array(32).fill(9)
const otherHex = '09'.repeat(32)
const broken = (path: string) => ({
  collateral: (all: readonly ReturnType<typeof kept>[]) =>
    all.map((one) => (one.url.includes(path) ? kept(one.url, 'broken') : one)),
})

const CONFIG_DOCUMENT = JSON.stringify({
  app_id: Buffer.from(APP_ID).toString('hex'),
  compose_hash: Buffer.from(COMPOSE_HASH).toString('hex'),
  version: 3,
})
const MILAN = { Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 } }

export const evidenceRefusals: readonly EvidenceRefusal[] = [
  {
    code: 'provider_kind',
    name: 'evidence of another kind',
    kind: 'dstack',
    changes: { policy: { kind: 'aci' } },
  },
  {
    code: 'provider_origin',
    name: 'evidence of another origin',
    kind: 'dstack',
    changes: { policy: { origins: ['https://another.example', 'https://provider.example:8443'] } },
  },
  {
    code: 'block_missing',
    name: 'a random nonce where a block is needed',
    kind: 'nitro',
    changes: { evidence: { block: null }, policy: { needs_block: true } },
  },
  {
    code: 'block_missing',
    name: 'an answer without a nonce where a block is needed',
    kind: 'tinfoil v2',
    changes: { policy: { needs_block: true } },
  },
  {
    code: 'block_nonce_mismatch',
    name: 'a nonce of another block',
    kind: 'nitro',
    changes: { evidence: { block: { chainId: 1, number: 17, hash: other } } },
  },
  {
    code: 'evidence_from_future',
    name: 'evidence that is fetched later',
    kind: 'nitro',
    changes: { evidence: { fetchedAtMs: atMs + 300_001 } },
  },
  {
    code: 'evidence_too_old',
    name: 'evidence that is older than a day',
    kind: 'nitro',
    changes: { evidence: { fetchedAtMs: atMs - 24 * HOUR_MS - 1 } },
  },
  {
    code: 'answer_missing',
    name: 'no answer',
    kind: 'tinfoil v2',
    changes: { evidence: { responses: [] } },
  },
  {
    code: 'answer_missing',
    name: 'an answer from another path',
    kind: 'aci',
    changes: { evidence: { responses: [kept(`${ORIGIN}/v1/attestation/report`, '{}')] } },
  },
  {
    code: 'answer_status',
    name: 'an error',
    kind: 'dstack',
    changes: {
      evidence: {
        responses: [{ ...kept(`${ORIGIN}/v1/attestation/report`, '{}'), status: 503 }],
      },
    },
  },
  {
    code: 'answer_malformed',
    name: 'version 2 that is no gzip',
    kind: 'tinfoil v2',
    changes: { answer: (answer) => Object.assign(answer, { body: 'AAAA' }) },
  },
  {
    code: 'answer_malformed',
    name: 'version 2 with another member',
    kind: 'tinfoil v2',
    changes: { answer: (answer) => Object.assign(answer, { more: 1 }) },
  },
  {
    code: 'answer_malformed',
    name: 'version 3 with another member',
    kind: 'tinfoil v3 TDX',
    changes: { answer: (answer) => Object.assign(answer, { domain: 'provider.example' }) },
  },
  {
    code: 'answer_malformed',
    name: 'version 3 with two keys of one id',
    kind: 'tinfoil v3 TDX',
    changes: { bound: (keys) => keys.items.push(keys.items[0]) },
  },
  {
    code: 'answer_malformed',
    name: 'version 3 with a TLS key of another format',
    kind: 'tinfoil v3 TDX',
    changes: {
      bound: (keys) => Object.assign(keys.items[0], { format: 'https://tinfoil.sh/key/spki/v1' }),
    },
  },
  {
    code: 'answer_malformed',
    name: 'a report without an event log',
    kind: 'dstack',
    changes: { answer: ({ gateway_attestation: report }) => delete report.event_log },
  },
  {
    code: 'answer_malformed',
    name: 'an address of another length',
    kind: 'dstack',
    changes: { answer: ({ gateway_attestation: report }) => (report.signing_address = '0xadad') },
  },
  {
    code: 'answer_malformed',
    name: 'another version of ACI',
    kind: 'aci',
    changes: { answer: (answer) => Object.assign(answer, { api_version: 'aci/2' }) },
  },
  {
    code: 'answer_malformed',
    name: 'a document without its configuration',
    kind: 'nitro',
    changes: { answer: (answer) => delete answer.boot_configuration },
  },
  {
    code: 'challenge_mismatch',
    name: 'a document for another nonce',
    kind: 'tinfoil v3 TDX',
    changes: { evidence: { nonce: other, block: null } },
  },
  {
    code: 'challenge_mismatch',
    name: 'a report for another nonce',
    kind: 'dstack',
    changes: { evidence: { nonce: other, block: null } },
  },
  {
    code: 'challenge_mismatch',
    name: 'an enclave for another nonce',
    kind: 'nitro',
    changes: { evidence: { nonce: other, block: null } },
  },
  {
    code: 'collateral_malformed',
    name: 'a build that is no JSON',
    kind: 'tinfoil v2',
    changes: broken('/attestations/'),
  },
  {
    code: 'pem_malformed',
    name: 'a chain of AMD that is no PEM',
    kind: 'tinfoil v2',
    changes: broken('/cert_chain'),
  },
  {
    code: 'tcb_info_malformed',
    name: 'a TCB info without its signature',
    kind: 'dstack',
    changes: broken('/v4/tcb'),
  },
  {
    code: 'tee_not_accepted',
    name: 'TDX where SEV-SNP is accepted',
    kind: 'tinfoil v3 TDX',
    changes: {
      policy: { weights: undefined, tdx: undefined, snp: { floors: MILAN } },
    },
  },
  {
    code: 'tls_key_missing',
    name: 'a document without a TLS key',
    kind: 'tinfoil v3 TDX',
    changes: { bound: (keys) => keys.items.shift() },
  },
  {
    code: 'tls_key_missing',
    name: 'a report without a fingerprint',
    kind: 'dstack',
    changes: { bound: (report) => Object.assign(report, { tls_cert_fingerprint: null }) },
  },
  {
    code: 'tls_key_missing',
    name: 'a keyset for another host',
    kind: 'aci',
    changes: { bound: (keyset) => (keyset.tls_public_keys[0].domain = 'example') },
  },
  {
    code: 'tls_key_missing',
    name: 'an enclave that has a notary alone',
    kind: 'nitro',
    changes: { bound: (configuration) => delete configuration.tls_public_keys },
  },
  {
    code: 'key_binding_mismatch',
    name: 'a document with another key',
    kind: 'tinfoil v3 TDX',
    changes: {
      answer: (answer) => {
        const section = Buffer.from(answer.crypto_material, 'base64').toString()
        const changed = section.replaceAll('c1c1', '0909')
        answer.crypto_material = Buffer.from(changed).toString('base64')
      },
    },
  },
  {
    code: 'key_binding_mismatch',
    name: 'a report with another key',
    kind: 'dstack',
    changes: { answer: ({ gateway_attestation: one }) => (one.tls_cert_fingerprint = otherHex) },
  },
  {
    code: 'key_binding_mismatch',
    name: 'a keyset for another nonce',
    kind: 'aci',
    changes: { evidence: { nonce: other, block: null } },
  },
  {
    code: 'keyset_digest_mismatch',
    name: 'another digest than the keyset has',
    kind: 'aci',
    changes: {
      answer: (answer) => Object.assign(answer, { workload_keyset_digest: `sha256:${otherHex}` }),
    },
  },
  {
    code: 'keyset_expired',
    name: 'a keyset that ends now',
    kind: 'aci',
    changes: { bound: (keyset) => Object.assign(keyset, { not_after: Math.floor(atMs / 1000) }) },
  },
  {
    code: 'configuration_mismatch',
    name: 'another configuration than the enclave has',
    kind: 'nitro',
    changes: { answer: (answer) => Object.assign(answer.boot_configuration, { chain_id: 2 }) },
  },
  {
    code: 'configuration_not_accepted',
    name: 'a configuration that the policy does not list',
    kind: 'nitro',
    changes: { policy: { configurations: [otherHex] } },
  },
  {
    code: 'build_malformed',
    name: 'a signed build without measurements',
    kind: 'tinfoil v2',
    changes: { predicate: { config: '' } },
  },
  {
    code: 'gpu_missing',
    name: 'no GPU where one is required',
    kind: 'tinfoil v3 TDX',
    changes: { policy: { gpu: 'required' } },
  },
  {
    code: 'gpu_missing',
    name: 'a switch where a GPU is required',
    kind: 'tinfoil v3 SNP',
    changes: { bound: (keys) => keys.devices.splice(0, 1, switchItem()) },
  },
  {
    code: 'gpu_malformed',
    name: 'a device of another maker',
    kind: 'tinfoil v3 SNP',
    changes: { bound: (keys) => Object.assign(keys.devices[0], { format: 'other' }) },
  },
  {
    code: 'gpu_refused',
    name: 'a GPU whose evidence was changed',
    kind: 'tinfoil v3 SNP',
    changes: {
      bound: (keys) => {
        const bytes = Buffer.from(keys.devices[0].evidence.evidence, 'base64')
        bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1
        keys.devices[0].evidence.evidence = bytes.toString('base64')
      },
    },
  },
  {
    code: 'gpu_repeated',
    name: 'the evidence of one GPU as that of two',
    kind: 'tinfoil v3 SNP',
    changes: { bound: ({ devices }) => devices.push({ ...devices[0], id: 'gpu-1' }) },
  },
  {
    code: 'weights_unknown',
    name: 'a machine without weights',
    kind: 'tinfoil v3 TDX',
    changes: { predicate: predicateOf('cpus: 8\n') },
  },
  {
    code: 'weights_unknown',
    name: 'weights that any firmware could state',
    kind: 'tinfoil v3 TDX',
    changes: { policy: { tdx: { platforms: 'any' } } },
  },
  {
    code: 'weights_not_accepted',
    name: 'a machine with other weights',
    kind: 'tinfoil v3 TDX',
    changes: { policy: { weights: [otherHex] } },
  },
  {
    code: 'weights_not_accepted',
    name: 'a machine with other weights beside accepted ones',
    kind: 'tinfoil v3 TDX',
    changes: {
      predicate: predicateOf(
        MODEL_CONFIG.replace(
          '\ncontainers',
          `  - name: "b"\n    repo: "b/b@1"\n    mpk: "${otherHex}_1_27ee073f-136c-5855-a1a3-1fdc293ec0bb"\n\ncontainers`,
        ),
      ),
    },
  },
]

export const evidenceAcceptances: readonly EvidenceAcceptance[] = [
  { name: 'version 2 of Tinfoil', kind: 'tinfoil v2' },
  { name: 'version 3 of Tinfoil on SEV-SNP with a GPU and weights', kind: 'tinfoil v3 SNP' },
  {
    name: 'a GPU beside a switch',
    kind: 'tinfoil v3 SNP',
    changes: { bound: ({ devices }) => devices.push(switchItem()) },
  },
  { name: 'version 3 of Tinfoil on TDX with weights', kind: 'tinfoil v3 TDX' },
  { name: 'a service on dstack', kind: 'dstack' },
  { name: 'an ACI service', kind: 'aci' },
  { name: 'another Affidavit', kind: 'nitro' },
  {
    name: 'a random nonce',
    kind: 'nitro',
    changes: { evidence: { block: null } },
  },
  {
    name: 'evidence that is a day old',
    kind: 'dstack',
    changes: { evidence: { fetchedAtMs: atMs - 24 * HOUR_MS } },
  },
  {
    name: 'a clock that is five minutes ahead',
    kind: 'dstack',
    changes: { evidence: { fetchedAtMs: atMs + 300_000 } },
  },
  {
    name: 'a report that is not inside gateway_attestation',
    kind: 'dstack',
    changes: {
      answer: (answer) =>
        Object.assign(answer, answer.gateway_attestation, { gateway_attestation: undefined }),
    },
  },
  {
    name: 'a service whose MRCONFIGID states a document',
    kind: 'dstack',
    changes: {
      configDocument: CONFIG_DOCUMENT,
      bound: (answer) => Object.assign(answer.info, { vm_config: JSON.parse(answer.vm_config) }),
    },
  },
  {
    name: 'an ACI service whose MRCONFIGID states a document',
    kind: 'aci',
    changes: { configDocument: CONFIG_DOCUMENT },
  },
  {
    name: 'a service that gives no description of its TCB',
    kind: 'dstack',
    changes: { bound: (answer) => Object.assign(answer.info, { tcb_info: '' }) },
  },
  {
    name: 'a keyset for any host',
    kind: 'aci',
    changes: { bound: (keyset) => delete keyset.tls_public_keys[0].domain },
  },
  {
    name: 'any tag of the repository, and any firmware',
    kind: 'tinfoil v3 TDX',
    changes: {
      policy: {
        release: { repository: 'example/model', refs: ['refs/tags/*'] },
        tdx: { platforms: 'any' },
        weights: undefined,
      },
    },
  },
]
