import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { ENCAPSULATED_KEY_HEADER, KEY_CONFIG_PROBLEM, NOTARY_HEADER } from '#attestation/ehbp.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { type Affidavit as Client, type ConnectOptions, connect } from '#client/index.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import {
  type EnclaveFleet,
  entryNamed,
  type FleetEnclave,
  startEnclaveFleet,
} from '../support/enclave-fleet.ts'
import { json, saying, textOf } from '../support/gateway-attacks/attack-case.ts'
import {
  type GatewayAnswer,
  type HostileGateway,
  type PassingCall,
  startHostileGateway,
} from '../support/hostile-gateway.ts'
import { until } from '../support/until.ts'

/** A hostile gateway with two enclaves wants to give one call to both, and to choose an answer. */

let fleet: EnclaveFleet
let service: Affidavit
let one: FleetEnclave
let two: FleetEnclave
let hostile: HostileGateway
let trusted: Pick<ConnectOptions, 'policy'>

const notariesNow = async () => {
  const reply = await fetch(`${service.url}/v1/notaries`)
  const { notaries } = (await reply.json()) as { notaries: readonly { notary: string }[] }
  return notaries.map(({ notary }) => notary)
}

beforeAll(async () => {
  fleet = await startEnclaveFleet()
  await fleet.accept([entryNamed('a1')])
  ;[one, two] = await Promise.all([fleet.start('one', 'a1'), fleet.start('two', 'a1')])
  service = await startAffidavit({
    dataFolder: join(fleet.folder, 'data'),
    variables: { ENCLAVE_URL: `${one.url},${two.url}`, ...fleet.releaseVariables },
  })
  await until('both enclaves are in use', async () => (await notariesNow()).length === 2)
  hostile = await startHostileGateway(service.url)
  const reply = await fetch(`${service.url}/v1/attestation`)
  const { boot_configuration: boot } = (await reply.json()) as { boot_configuration: JsonObject }
  const { ENCLAVE_RELEASES_FILE: file = '', RELEASE_KEY: key = '' } = fleet.releaseVariables
  trusted = {
    policy: {
      enclaves: {
        releases: [JSON.parse(await readFile(file, 'utf8'))],
        releaseKeys: [key],
        configurations: [encodeHex(digestBootConfiguration(boot))],
        roots: [await readFile(fleet.rootFile, 'utf8')],
      },
    },
  }
})
afterEach(() => hostile.set(null))
afterAll(async () => {
  await hostile?.stop()
  await service?.stop()
  await fleet?.stop()
})

let calls = 0
const FORMS: Readonly<Record<string, (text: string) => readonly [path: string, body: object]>> = {
  chat: (content) => ['/chat/completions', { messages: [{ role: 'user', content }] }],
  Responses: (input) => ['/responses', { input }],
  Messages: (content) => [
    '/anthropic/v1/messages',
    { max_tokens: 50, messages: [{ role: 'user', content }] },
  ],
}

/** Makes a call. Gives the check `attempt` of its answer, or the code of the refusal. */
async function call(client: Client, api: string) {
  const [path, body] = FORMS[api]?.(`hostile enclaves ${++calls}`) ?? ['', {}]
  try {
    const reply = await client.fetch(client.baseURL + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
      body: JSON.stringify({ model: 'demo/echo', ...body }),
    })
    const text = await reply.text()
    if (!reply.ok) return { refused: `${reply.status} ${text}` }
    const proof = client.proofs.of(reply)
    return { proof, attempt: proof?.checks.find(({ name }) => name === 'attempt') }
  } catch (fault) {
    return { refused: (fault as { readonly code?: string }).code }
  }
}

const otherThan = async (notary: string | undefined) =>
  (await notariesNow()).find((other) => other !== notary) ?? ''

/** Gives the call to the enclave that the caller named, and then to the other one. */
async function askBoth(passing: PassingCall): Promise<readonly [GatewayAnswer, GatewayAnswer]> {
  const named = await passing.ask()
  const other = await otherThan(passing.headers[NOTARY_HEADER])
  return [named, await passing.ask(passing.body, { [NOTARY_HEADER]: other })]
}

/** What a gateway states when the named enclave is gone. */
const gone = ({ headers }: PassingCall): GatewayAnswer =>
  headers[ENCAPSULATED_KEY_HEADER] === undefined
    ? json({ error: { code: 'notary_mismatch', message: 'gone' } }, 422)
    : {
        status: 422,
        headers: { 'content-type': 'application/problem+json' },
        body: JSON.stringify({ type: KEY_CONFIG_PROBLEM, title: 'gone' }),
      }

describe.each([false, true])('a gateway with two enclaves, calls encrypted: %s', (encrypt) => {
  let client: Client
  const reconnect = async () => {
    client = await connect({ url: hostile.url, apiKey: service.apiKey, encrypt, ...trusted })
  }
  beforeAll(reconnect)

  it.each(Object.keys(FORMS))(
    'the other enclave refuses a call that names one, in %s',
    async (api) => {
      let others = null as GatewayAnswer | null
      hostile.set(
        saying(async (passing) => {
          const [named, other] = await askBoth(passing)
          others = other
          return named
        }),
      )
      expect((await call(client, api)).attempt).toMatchObject({ outcome: 'passed' })
      if (others === null) throw new Error('expected the other enclave to be asked')
      expect(textOf(others)).toContain(encrypt ? KEY_CONFIG_PROBLEM : 'notary_mismatch')
    },
  )

  it.each(Object.keys(FORMS))(
    'a call that the gateway withholds from its caller, so that another enclave makes it too, is named in the report of %s',
    async (api) => {
      let first: string | undefined
      hostile.set(
        saying(async (passing) => {
          const answer = await passing.ask()
          if (first !== undefined) return answer
          first = passing.headers[NOTARY_HEADER]
          return gone(passing)
        }),
      )
      const { attempt, proof } = await call(client, api)
      expect(attempt).toMatchObject({ outcome: 'not checked' })
      expect(attempt?.detail).toContain(`also sent 1 times to ${first}, which may have made it`)
      expect(proof?.unanswered).toEqual([{ notary: first, times: 1 }])
    },
  )

  // A gateway cannot rewrite an encrypted call.
  if (!encrypt)
    it('an answer of the other enclave to a call that names it in place of the first is refused', async () => {
      hostile.set(
        saying(async (passing) => {
          const other = await otherThan(passing.headers[NOTARY_HEADER])
          const request = JSON.parse(passing.body)
          request.affidavit.notary = other
          return passing.ask(JSON.stringify(request), { [NOTARY_HEADER]: other })
        }),
      )
      expect(await call(client, 'chat')).toEqual({ refused: 'wrong_request' })
    })

  it('an enclave that restarted and counts from 1 refuses a call that names the earlier one', async () => {
    const before = await notariesNow()
    let again: GatewayAnswer | null = null
    let first: string | undefined
    hostile.set(
      saying(async (passing) => {
        const answer = await passing.ask()
        if (first !== undefined) return answer
        first = passing.headers[NOTARY_HEADER]
        const [name, ended] = first === one.notary ? ['one', one] : ['two', two]
        await ended.kill()
        const started = await fleet.start(name, 'a1')
        if (ended === one) one = started
        else two = started
        await until('the new enclave is in use', async () =>
          (await notariesNow()).includes(started.notary),
        )
        again = await passing.ask(passing.body, { [NOTARY_HEADER]: started.notary })
        return gone(passing)
      }),
    )
    const { attempt } = await call(client, 'chat')
    expect(again).toMatchObject({ status: 422 })
    expect(attempt).toMatchObject({ outcome: 'not checked' })
    expect(attempt?.detail).toContain(`also sent 1 times to ${first}`)
    expect(await notariesNow()).not.toEqual(before)
  })
})
