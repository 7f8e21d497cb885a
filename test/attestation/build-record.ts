import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { TypedDataEncoder, Wallet } from 'ethers'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import type { LogProof } from '#attestation/log-proof-form.ts'
import type { Receipt, ReceiptCredential } from '#attestation/receipt.ts'
import { buildDocument } from '../support/nitro-builder/document-builder.ts'
import { createReference } from './merkle/reference.ts'

/** Key of the notary in tests. Anyone can know it: it signs nothing else. */
export const NOTARY = new Wallet(
  `0x${createHash('sha256').update('a notary for tests').digest('hex')}`,
)

export const CHAIN_ID = 31337
export const CONTRACT = `0x${'c0'.repeat(20)}`

/**
 * A request with what is easy to get wrong: unset and nested nulls, astral text, numbers of every
 * form.
 */
export const REQUEST: JsonObject = {
  model: 'demo/echo',
  messages: [
    { role: 'system', content: 'Answer in one word.' },
    { role: 'user', name: 'ada', content: [{ type: 'text', text: 'Größe? 😀 \u0000' }] },
  ],
  temperature: 0.7,
  logit_bias: { '50256': -100, '9': 1 },
  seed: 9007199254740991,
  response_format: { type: 'json_schema', json_schema: { name: 'n', schema: null } },
}

/** A response with numbers that canonical JSON writes in every form it has. */
export const RESPONSE: JsonObject = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1760000000,
  model: 'demo/echo-2025',
  service_tier: null,
  choices: [
    {
      index: 0,
      finish_reason: 'stop',
      message: { role: 'assistant', content: 'groß', refusal: null },
      logprobs: {
        content: [{ token: 'groß', bytes: [103, 114], logprob: -1e-7, top_logprobs: [] }],
        refusal: null,
      },
    },
  ],
  usage: {
    prompt_tokens: 12,
    completion_tokens: 1,
    total_tokens: 13,
    cost: 1.5e300,
    count: 12345678901234567000,
  },
}

/** A record in both forms in which callers meet it. */
export type BuiltRecord = {
  readonly request: JsonObject
  /** Interface 2.4. */
  readonly stored: JsonObject
  /** Interface 2.3. */
  readonly created: JsonObject
}

/** What to make otherwise than usual. */
export type RecordParts = {
  readonly request?: JsonObject
  readonly response?: JsonObject
  readonly receipt?: Partial<Receipt>
  /** Of a stream: what the receipt says of its chunks. */
  readonly streamHash?: string | null
  /** Leaves of other completions before and after this one. */
  readonly before?: number
  readonly after?: number
}

/**
 * A valid record, made as attestation/formats.md says with the platform's SHA-256, ethers and the
 * reference tree, so that nothing it is checked with took part in making it.
 */
export function buildRecord(parts: RecordParts = {}): BuiltRecord {
  const { request = REQUEST, response = RESPONSE, before = 5, after = 3 } = parts
  const requestHash = sha256(String(canonicalize(request)))
  const responseHash = sha256(String(canonicalize(response)))
  const hash = createHash('sha256').update(requestHash).update(responseHash).digest()
  const call = callOf(request)
  const { [DEMANDS_HEADER]: _, ...headers } = call.headers
  const receipt: Receipt = {
    version: 1,
    index: before,
    hash: hash.toString('hex'),
    request_hash: requestHash.toString('hex'),
    response_hash: responseHash.toString('hex'),
    forwarded_hash: sha256('forwarded').toString('hex'),
    received_hash: sha256('received').toString('hex'),
    provider: {
      name: 'demo',
      origin: 'https://provider.example',
      tls: {
        protocol: 'TLSv1.3',
        spki_sha256: sha256('spki').toString('hex'),
        subject: 'CN=provider.example',
        issuer: 'CN=A CA',
      },
    },
    model: {
      requested: String(call.body.model),
      returned: typeof response.model === 'string' ? response.model : null,
    },
    outcome: 'complete',
    started_at: 1760000000123,
    finished_at: 1760000001999,
    stream_hash: parts.streamHash ?? null,
    attempt: 1,
    encrypted: false,
    credential: credentialOf(request),
    dialect: call.dialect,
    headers,
    ...parts.receipt,
  }
  const proof = {
    hash: hash.toString('hex'),
    public_key: NOTARY.signingKey.publicKey,
    signature: NOTARY.signMessageSync(hash),
    tx_hash: `0x${sha256('transaction').toString('hex')}`,
    attestation: Buffer.from(DOCUMENT).toString('base64'),
    receipt,
  }
  const isChat = call.dialect === 'chat'
  const echo = isChat ? { stop: null, tools: null, ...request } : request
  const log = proveReceipt(receipt, after)
  return {
    request,
    stored: {
      id: '0198c0de-0000-7000-8000-000000000001',
      request: echo,
      response,
      ...proof,
      created_at: 1760000001,
      log,
    },
    created: isChat
      ? { ...response, ...proof, log }
      : { ...response, affidavit: { ...proof, log } as unknown as JsonObject },
  }
}

const DEMANDS_HEADER = 'affidavit-call'

/** The parts of a request, which is that of a chat unless it names its dialect. */
function callOf(request: JsonObject): {
  readonly dialect: DialectName
  readonly headers: Readonly<Record<string, string>>
  readonly body: JsonObject
} {
  const { dialect, headers, body } = request
  if (dialect === undefined) return { dialect: 'chat', headers: {}, body: request }
  return {
    dialect: dialect as DialectName,
    headers: headers as Readonly<Record<string, string>>,
    body: body as JsonObject,
  }
}

/** What a call demands in its body or in the header for it. */
function demandsIn(request: JsonObject): Json {
  const { headers, body } = callOf(request)
  const header = headers[DEMANDS_HEADER]
  return header === undefined
    ? (body.affidavit ?? null)
    : JSON.parse(Buffer.from(header, 'base64url').toString())
}

/** What an enclave states whose operator has a credential, and that does as the request demands. */
export function credentialOf(request: JsonObject): ReceiptCredential {
  const demands = demandsIn(request)
  const demand = isJsonObject(demands) ? demands.credential : undefined
  const isCallers = demand !== undefined && demand !== 'operator'
  return { from: isCallers ? 'caller' : 'operator', demanded: demand !== undefined }
}

const DOCUMENT = buildDocument({
  fields: { public_key: Buffer.from(NOTARY.signingKey.publicKey.slice(2), 'hex') },
})

function proveReceipt(receipt: Receipt, after: number): LogProof {
  const others = Array.from({ length: receipt.index + after }, (_, index) =>
    Buffer.from(`another receipt ${index}`),
  )
  const leaves = others.toSpliced(receipt.index, 0, Buffer.from(String(canonicalize(receipt))))
  const reference = createReference(leaves)
  const size = leaves.length
  const root = reference.root(size)
  return {
    size,
    root: Buffer.from(root).toString('hex'),
    signature: signHead(size, root),
    path: reference.path(receipt.index, size).map((hash) => Buffer.from(hash).toString('hex')),
    chain_id: CHAIN_ID,
    contract: CONTRACT,
  }
}

/** The notary's signature over a head of its log, or over that head in the log of another contract. */
export function signHead(size: number, root: Uint8Array, contract = CONTRACT): string {
  const domain = { name: 'Affidavit', version: '1', chainId: CHAIN_ID, verifyingContract: contract }
  const fields = [
    { name: 'size', type: 'uint64' },
    { name: 'root', type: 'bytes32' },
  ]
  const digest = TypedDataEncoder.hash(domain, { TreeHead: fields }, { size, root })
  return NOTARY.signingKey.sign(digest).serialized
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
