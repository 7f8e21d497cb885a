import { gzipSync } from 'node:zlib'
import { Wallet } from 'ethers'
import { PROOF_MEMBERS } from '#attestation/completion-hash.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { ForgedNotary } from '../forged-notary.ts'
import { both, type GatewayAnswer } from '../hostile-gateway.ts'
import {
  ABYSS,
  type AttackCase,
  asking,
  casesOf,
  EVIL,
  EVIL_RESPONSE,
  editing,
  type Forge,
  json,
  type Loose,
  otherCompletion,
  rewriting,
  saying,
} from './attack-case.ts'
import { swappingNotaries } from './document-attacks.ts'

const TOOLS = {
  model: 'demo/echo',
  tools: [
    {
      type: 'function',
      function: {
        name: 'pay',
        parameters: { type: 'object', properties: { to: { type: 'string' } } },
      },
    },
  ],
  messages: [{ role: 'user', content: 'pay({"to":"Ann"})' }],
}

const flipHex = (text: string, at: number) =>
  text.slice(0, at) + (text[at] === '0' ? '1' : '0') + text.slice(at + 1)
const message = (answer: Loose) => answer.choices[0].message
/**
 * Puts members at the start of the JSON text. So a member can be there twice, which a parsed value
 * could not hold.
 */
const inserting = (members: string) => (text: string) => text.replace(/^\s*\{/, `{${members},`)
const HTML = `<!doctype html><title>Sign in</title><p>${EVIL}`

/** What an attacker can do to a whole answer that the enclave signed. */
const ALTERED: readonly AttackCase[] = casesOf('alters the answer', [
  ['another text', 'wrong_response', editing((a) => (message(a).content = EVIL))],
  ['a member beside the choices', 'wrong_response', editing((a) => (a.output_text = EVIL))],
  ['a member taken away', 'wrong_response', editing((a) => delete a.choices[0].logprobs)],
  [
    'another reason of its end',
    'wrong_response',
    editing((a) => (a.choices[0].finish_reason = 'length')),
  ],
  [
    'a choice more',
    'wrong_response',
    editing((a) => a.choices.unshift({ ...(EVIL_RESPONSE.choices as object[]) }[0])),
  ],
  ['another model', 'wrong_response', editing((a) => (a.model = 'demo/better'))],
  ['an error beside the choices', 'wrong_response', editing((a) => (a.error = { message: EVIL }))],
  [
    'a __proto__',
    'wrong_response',
    rewriting(inserting(`"__proto__":{"choices":[{"message":{"content":"${EVIL}"}}]}`)),
  ],
  [
    'the choices twice, its own before',
    'invalid_answer',
    rewriting(
      inserting(`"choices":[{"index":0,"message":{"role":"assistant","content":"${EVIL}"}}]`),
    ),
  ],
  [
    'the same member twice, once escaped',
    'invalid_answer',
    rewriting(
      inserting(`"\\u0063hoices":[{"index":0,"message":{"role":"assistant","content":"${EVIL}"}}]`),
    ),
  ],
  [
    'a number that no double is',
    'invalid_answer',
    rewriting((text) => text.replace(/"created":\d+/, '"created":12345678901234567891')),
  ],
  ['a member of endless depth', 'invalid_answer', rewriting(inserting(`"x":${ABYSS}`))],
  ['a lone surrogate', 'invalid_answer', rewriting((text) => text.replace('You said', '\\ud800'))],
  [
    'bytes that are no UTF-8',
    'invalid_answer',
    rewriting((text) =>
      Buffer.concat([
        Buffer.from(text.slice(0, -1)),
        Buffer.from([0x2c, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
      ]),
    ),
  ],
  ['a byte order mark', 'invalid_answer', rewriting((text) => `\ufeff${text}`)],
  ['something after the JSON', 'invalid_answer', rewriting((text) => `${text}{"choices":[]}`)],
])

const TOOL_CALLS = (
  [
    [
      'other arguments',
      editing((a) => (message(a).tool_calls[0].function.arguments = '{"to":"Mallory"}')),
    ],
    ['a call more', editing((a) => message(a).tool_calls.push(message(a).tool_calls[0]))],
  ] as const
).map(
  ([name, attack]): AttackCase => ({
    name: `alters the tool calls: ${name}`,
    code: 'wrong_response',
    attack,
    request: TOOLS,
  }),
)

const REQUEST = (
  [
    ['another prompt', asking((r) => (r.messages[0].content = EVIL))],
    ['another model', asking((r) => (r.model = 'demo/lorem'))],
    ['another nonce', asking((r) => (r.affidavit = { nonce: '00'.repeat(16) }))],
    ['no nonce', asking((r) => delete r.affidavit)],
    ['a member more', asking((r) => (r.metadata = { by: 'Mallory' }))],
  ] as const
).map(
  ([name, attack]): AttackCase => ({
    name: `alters the request: ${name}`,
    code: 'wrong_request',
    attack,
  }),
)

const signAgain = async (a: Loose) => {
  const wallet = Wallet.createRandom()
  a.signature = await wallet.signMessage(Buffer.from(a.hash, 'hex'))
  return wallet
}

const PROOF: readonly AttackCase[] = casesOf('alters the proof', [
  ['another hash', 'wrong_hash', editing((a) => (a.hash = flipHex(a.hash, 5)))],
  [
    'a bit of the signature',
    'wrong_signature',
    editing((a) => (a.signature = flipHex(a.signature, 20))),
  ],
  ['a signature by another key', 'wrong_signature', editing(signAgain)],
  [
    'a signature and a key of its own',
    'wrong_key',
    editing(async (a) => (a.public_key = (await signAgain(a)).signingKey.publicKey)),
  ],
  [
    'a key that is no point',
    'wrong_key',
    editing((a) => (a.public_key = `0x04${'00'.repeat(64)}`)),
  ],
  ['a provider', 'not_in_log', editing((a) => (a.receipt.provider.name = 'better'))],
  ['an attempt', 'not_in_log', editing((a) => (a.receipt.attempt += 1))],
  ['a time', 'not_in_log', editing((a) => (a.receipt.finished_at += 1))],
  ['a model', 'wrong_receipt', editing((a) => (a.receipt.model.returned = 'demo/better'))],
  ['a member more in the receipt', 'wrong_receipt', editing((a) => (a.receipt.note = EVIL))],
  [
    'the receipt of another completion',
    'wrong_request',
    editing(async (a, call) => (a.receipt = JSON.parse(await otherCompletion(call)).receipt)),
  ],
  [
    'the whole proof of another completion',
    'wrong_request',
    editing(async (a, call) => {
      const {
        id: _,
        object: __,
        created: ___,
        model: ____,
        choices: _____,
        usage: ______,
        ...proof
      } = JSON.parse(await otherCompletion(call))
      Object.assign(a, proof)
    }),
  ],
  ['another root', 'not_in_log', editing((a) => (a.log.root = flipHex(a.log.root, 5)))],
  [
    'path and head of another completion',
    'not_in_log',
    editing(async (a, call) => (a.log = JSON.parse(await otherCompletion(call)).log)),
  ],
  ['a head for another chain', 'wrong_head', editing((a) => (a.log.chain_id += 1))],
  [
    'a head for another contract',
    'wrong_head',
    editing((a) => (a.log.contract = `0x${'c0'.repeat(20)}`)),
  ],
  [
    'the signature of the head',
    'wrong_head',
    editing((a) => (a.log.signature = flipHex(a.log.signature, 20))),
  ],
])

/** The code names the missing member; without a receipt there is no proof at all. */
const STRIPPED: readonly AttackCase[] = casesOf('strips the proof', [
  ['receipt', 'no_proof', editing((a) => delete a.receipt)],
  ['null for a receipt', 'wrong_receipt', editing((a) => (a.receipt = null))],
  ['hash', 'wrong_hash', editing((a) => delete a.hash)],
  ['public_key', 'wrong_key', editing((a) => delete a.public_key)],
  ['signature', 'wrong_signature', editing((a) => delete a.signature)],
  ['attestation', 'wrong_key', editing((a) => delete a.attestation)],
  ['log', 'wrong_receipt', editing((a) => delete a.log)],
  ['tx_hash', 'no_proof', editing((a) => delete a.tx_hash)],
  [
    'all of it',
    'no_proof',
    editing((a) => {
      for (const name of PROOF_MEMBERS) delete a[name]
    }),
  ],
])

const HEADERS = { 'content-type': 'application/json' }
const BOMB = gzipSync(Buffer.alloc(256 * 2 ** 20, ' '), { level: 9 })

async function* endless(text: string): AsyncIterable<string> {
  for (;;) yield text
}

const REPLIES: readonly AttackCase[] = casesOf('answers with', [
  [
    'an error with status 200',
    'error_in_answer',
    saying(() => json({ error: { message: EVIL, code: 'x' } })),
  ],
  [
    'HTML that says it is JSON',
    'invalid_answer',
    saying(() => ({ status: 200, headers: HEADERS, body: HTML })),
  ],
  ['an answer without a proof', 'no_proof', saying(() => json(EVIL_RESPONSE))],
  ['a list', 'invalid_answer', saying(() => json([EVIL_RESPONSE]))],
  ['nothing', 'invalid_answer', saying(() => ({ status: 200, headers: HEADERS, body: '' }))],
  ['status 204', 'invalid_answer', saying(() => ({ status: 204, headers: {}, body: '' }))],
  [
    'a redirection to itself',
    'redirected',
    saying((call) => ({ status: 307, headers: { location: call.path }, body: '' })),
  ],
  [
    'half of the JSON',
    'invalid_answer',
    saying(async (call) => {
      const answer = await call.ask()
      return { ...answer, body: String(answer.body).slice(0, 200) }
    }),
  ],
  [
    'a stream of events',
    'invalid_answer',
    saying(async (call) => call.ask(JSON.stringify({ ...JSON.parse(call.body), stream: true }))),
  ],
  [
    'JSON that says it is a stream',
    'invalid_answer',
    saying(async (call) => ({
      ...(await call.ask()),
      headers: { 'content-type': 'text/event-stream' },
    })),
  ],
  [
    'an answer without end',
    'answer_too_large',
    saying(() => ({ status: 200, headers: HEADERS, body: endless(' '.repeat(2 ** 16)) })),
  ],
  [
    'a small body that unpacks to a large one',
    'answer_too_large',
    saying(() => ({
      status: 200,
      headers: { ...HEADERS, 'content-encoding': 'gzip' },
      body: BOMB,
    })),
  ],
])

const withDocument = (forger: () => ForgedNotary) =>
  editing(async (a) => (a.attestation = await forger().documentFor(a.public_key)))

/** All attacks on whole answers. What an enclave never signs, a forger signs. */
export function answerAttacks(forge: Forge): readonly AttackCase[] {
  let kept: GatewayAnswer | null = null
  const forging = (receipt: object) =>
    both(
      saying(async (call) => {
        const request = JSON.parse(call.body) as JsonObject
        return json(await forge('trusted').answer({ request, response: EVIL_RESPONSE, receipt }))
      }),
      swappingNotaries(() => forge('trusted')),
    )
  /** The document beside an answer of the real notary: genuine, except for one thing. */
  const documents = casesOf('shows another document for the key', [
    ['of other code', 'unexpected_code', withDocument(() => forge('otherCode'))],
    ['under another root', 'invalid_document', withDocument(() => forge('otherRoot'))],
    [
      'of another configuration',
      'unexpected_configuration',
      withDocument(() => forge('otherConfiguration')),
    ],
    ['that has expired', 'document_expired', withDocument(() => forge('expired'))],
    [
      'of another key',
      'wrong_key',
      editing(async (a) => (a.attestation = (await forge('trusted').entry(null)).attestation)),
    ],
    ['that is none', 'wrong_key', editing((a) => (a.attestation = 'AAAA'))],
  ])
  return [
    ...ALTERED,
    ...documents,
    ...TOOL_CALLS,
    ...REQUEST,
    ...PROOF,
    ...STRIPPED,
    ...REPLIES,
    {
      name: 'asks twice and gives the second answer',
      code: 'asked_again',
      attack: saying(async (call) => {
        await call.ask()
        return call.ask()
      }),
    },
    {
      name: 'replays an old answer to the same prompt',
      code: 'wrong_request',
      attack: saying(async (call) => {
        const { affidavit: _, ...request } = JSON.parse(call.body)
        kept ??= await call.ask(
          JSON.stringify({ ...request, affidavit: { nonce: '01'.repeat(16) } }),
        )
        return kept
      }),
    },
    {
      name: 'answers by an enclave that is accepted, but that the call does not name',
      code: 'unknown_notary',
      attack: forging({}),
    },
  ]
}
