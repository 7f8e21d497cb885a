import { decodeHex } from '#attestation/bytes.ts'
import type { AffidavitErrorCode } from '#client/errors.ts'
import type { ForgedNotary } from '../forged-notary.ts'
import type { Attack, GatewayAnswer, PassingCall } from '../hostile-gateway.ts'
import {
  ABYSS,
  EVIL,
  type Forge,
  type ForgerName,
  json,
  type Loose,
  textOf,
} from './attack-case.ts'

/**
 * An attack on connect: `code` is the code of the rejection, `cause` says why the only notary was
 * refused.
 */
export type DocumentAttack = {
  readonly name: string
  readonly code: AffidavitErrorCode
  readonly cause?: AffidavitErrorCode
  readonly attack: Attack
}

/** Replaces every notary of the gateway with a forger. */
export function swappingNotaries(forge: () => ForgedNotary): Attack {
  return {
    meets: 'documents',
    answer: async (call) => {
      const nonce = call.query.get('nonce')
      const entry = await forge().entry(nonce === null ? null : decodeHex(nonce))
      return json(
        call.path === '/v1/notaries' ? { notaries: [{ ...entry, encryption_keys: [] }] } : entry,
      )
    },
  }
}

/** Gives other answers for documents, lists or both. */
const answering = (
  path: '/v1/notaries' | '/v1/attestation',
  answer: (call: PassingCall) => GatewayAnswer | Promise<GatewayAnswer>,
): Attack => ({
  meets: 'documents',
  answer: (call) => (call.path === path ? answer(call) : call.ask()),
})

/** Changes what the gateway says about one notary beside a fresh document. */
const editing = (change: (reply: Loose) => unknown) =>
  answering('/v1/attestation', async (call) => {
    const answer = await call.ask()
    const reply = JSON.parse(textOf(answer))
    change(reply)
    return { ...answer, body: JSON.stringify(reply) }
  })

const listing = (change: (list: Loose) => unknown) =>
  answering('/v1/notaries', async (call) => {
    const answer = await call.ask()
    const reply = JSON.parse(textOf(answer))
    change(reply)
    return { ...answer, body: JSON.stringify(reply) }
  })

const fixed = (
  body: string,
  headers: Readonly<Record<string, string>> = { 'content-type': 'application/json' },
  status = 200,
) => answering('/v1/notaries', () => ({ status, headers, body }))

/** A body of `bytes` bytes that is JSON of an expected form. */
async function* spaces(count: number): AsyncIterable<string> {
  yield '{"notaries":['
  for (let left = count; left > 0; left -= 2 ** 20) yield ' '.repeat(2 ** 20)
  yield ']}'
}

/** Begins an answer, and never ends it. */
const stalling = (path: '/v1/notaries' | '/v1/attestation') =>
  answering(path, () => ({ ...json({}), body: '{', after: 'stall' }))

/** All attacks on documents and lists of notaries while a client connects. */
export function documentAttacks(forge: Forge): readonly DocumentAttack[] {
  const swapped: readonly (readonly [string, ForgerName, AffidavitErrorCode])[] = [
    ['one of other code', 'otherCode', 'unexpected_code'],
    ['one under a root of its own', 'otherRoot', 'invalid_document'],
    ['one with a provider of its own', 'otherConfiguration', 'unexpected_configuration'],
    ['one whose document has expired', 'expired', 'document_expired'],
  ]
  const refused: readonly (readonly [string, AffidavitErrorCode, Attack])[] = [
    [
      'a document over no nonce',
      'invalid_document',
      answering('/v1/attestation', (call) =>
        call.get(`/v1/attestation?notary=${call.query.get('notary')}`),
      ),
    ],
    [
      'a document over another nonce',
      'invalid_document',
      answering('/v1/attestation', async (call) => {
        const own = JSON.parse(textOf(await call.ask()))
        const attestation = await forge('trusted').documentFor(own.public_key, new Uint8Array(32))
        return json({ ...own, attestation })
      }),
    ],
    [
      'the document of another notary',
      'invalid_document',
      answering('/v1/attestation', async (call) =>
        json(await forge('trusted').entry(decodeHex(call.query.get('nonce') ?? ''))),
      ),
    ],
    [
      'a bit of the document',
      'invalid_document',
      editing(
        (r) => (r.attestation = `${r.attestation.slice(0, -6)}AAAA${r.attestation.slice(-2)}`),
      ),
    ],
    ['no document', 'invalid_reply', editing((r) => delete r.attestation)],
    ['a document that is no base64', 'invalid_document', editing((r) => (r.attestation = EVIL))],
    ['another chain', 'invalid_document', editing((r) => (r.boot_configuration.chain_id += 1))],
    [
      'a member more in the configuration',
      'invalid_document',
      editing((r) => (r.boot_configuration.debug = true)),
    ],
    ['no configuration', 'invalid_reply', editing((r) => delete r.boot_configuration)],
    [
      'an error in place of a document',
      'gateway_error',
      answering('/v1/attestation', () => json({ error: { message: 'no' } }, 500)),
    ],
    [
      'a redirection in place of a document',
      'redirected',
      answering('/v1/attestation', () => ({ status: 302, headers: { location: '/' }, body: '' })),
    ],
  ]
  return [
    ...swapped.map(([name, forger, cause]) => ({
      name: `swaps the notary for ${name}`,
      code: 'no_notary' as const,
      cause,
      attack: swappingNotaries(() => forge(forger)),
    })),
    ...refused.map(([name, cause, attack]) => ({
      name: `gives ${name}`,
      code: 'no_notary' as const,
      cause,
      attack,
    })),
    { name: 'lists no notary', code: 'no_notary', attack: listing((r) => (r.notaries = [])) },
    { name: 'lists nothing', code: 'invalid_reply', attack: fixed('{}') },
    { name: 'lists null', code: 'invalid_reply', attack: fixed('{"notaries":null}') },
    {
      name: 'lists notaries without addresses',
      code: 'invalid_reply',
      attack: fixed('{"notaries":[{}]}'),
    },
    {
      name: 'lists more notaries than there can be',
      code: 'invalid_reply',
      attack: listing((r) => (r.notaries = Array(65).fill(r.notaries[0]))),
    },
    {
      name: 'lists without end',
      code: 'invalid_reply',
      attack: answering('/v1/notaries', () => ({
        status: 200,
        headers: { 'content-type': 'application/json' },
        body: spaces(2 ** 27),
      })),
    },
    {
      name: 'lists in no JSON',
      code: 'invalid_reply',
      attack: fixed('<!doctype html>', { 'content-type': 'text/html' }),
    },
    {
      name: 'lists in endless depth',
      code: 'invalid_reply',
      attack: fixed(`{"notaries":${ABYSS}}`),
    },
    { name: 'never ends its list', code: 'unreachable', attack: stalling('/v1/notaries') },
    {
      name: 'never ends a document',
      code: 'no_notary',
      cause: 'unreachable',
      attack: stalling('/v1/attestation'),
    },
    {
      name: 'lists a member twice',
      code: 'invalid_reply',
      attack: fixed('{"notaries":[],"notaries":[]}'),
    },
    { name: 'lists nothing at all', code: 'invalid_reply', attack: fixed('') },
    {
      name: 'lists with an error',
      code: 'gateway_error',
      attack: fixed('{"error":{"message":"no"}}', { 'content-type': 'application/json' }, 500),
    },
    {
      name: 'sends the list elsewhere',
      code: 'redirected',
      attack: fixed('', { location: 'http://127.0.0.1:9/' }, 301),
    },
  ]
}
