import { describe, expect, it } from 'vitest'
import { runCli } from '../../support/run-cli.ts'
import { CHAT, VERIFIED_CHAT_ROWS } from './chat-rows.ts'
import { VERIFIED_CHAT, VERIFIED_RECORD } from './endpoints.ts'
import { missingFields } from './missing-fields.ts'
import { expectFault, expectRefusal } from './reply-checks.ts'
import { RECORD_FIELDS } from './reply-fields.ts'
import type { Stage } from './stage.ts'
import { eachOf } from './walk-fields.ts'

type Page = {
  readonly completions: readonly { readonly id: string }[]
  readonly cursor: string | null
}

/** Interface, 2.3, 2.4, parts 4 and 5: verified completions and their stored records. */
export function walkRecords(stage: () => Stage): void {
  describe('2.4: a stored completion', () => {
    it('a record is found by its hash, with the request as it was sent and the very proof', async () => {
      const { api, post } = stage()
      const request = { ...CHAT, temperature: 0.5, stop: ['x'], user: 'me', seed: 7 }
      const made = (await post(VERIFIED_CHAT, request)).value as Readonly<Record<string, unknown>>
      const target = `${VERIFIED_CHAT}/${made.hash}`
      const record = await api.call({ method: 'GET', path: VERIFIED_RECORD, target })
      const { hash, public_key, signature, attestation, tx_hash, receipt, log, ...response } = made
      expect(hash).toMatch(/^[0-9a-f]{64}$/)
      expect(record.value).toMatchObject({
        hash,
        public_key,
        signature,
        attestation,
        tx_hash,
        receipt,
        log,
      })
      expect(record.value).toMatchObject({ request, response })
    })

    it('a record has null for what the request did not set', async () => {
      const { api, known } = stage()
      const target = `${VERIFIED_CHAT}/${known.hash}`
      const { value } = await api.call({ method: 'GET', path: VERIFIED_RECORD, target })
      const { messages, model, ...others } = (
        value as { readonly request: Readonly<Record<string, unknown>> }
      ).request
      expect(model).toBe(CHAT.model)
      expect(messages).toEqual(
        CHAT.messages.map((one) => ({ ...one, name: null, function_call: null })),
      )
      const unset = VERIFIED_CHAT_ROWS.map(({ field }) => field).filter((field) => !(field in CHAT))
      expect(others).toEqual(Object.fromEntries(unset.map((field) => [field, null])))
    })

    it('a hash that has no record is answered 404', async () => {
      const target = `${VERIFIED_CHAT}/${'0'.repeat(64)}`
      const reply = await stage().api.call({ method: 'GET', path: VERIFIED_RECORD, target })
      expectRefusal(reply, 404, 'not_found')
    })
  })

  describe('part 4, rule 1: the list of them', () => {
    const pageOf = async (query: string) => (await stage().get(VERIFIED_CHAT, query)).value as Page

    it('the list has a hundred records unless limit says otherwise, and goes on after the cursor', async () => {
      const seeds = Array.from({ length: 101 }, (_, index) => index)
      await eachOf(seeds, async (seed) => {
        expect((await stage().post(VERIFIED_CHAT, { ...CHAT, seed })).status).toBe(200)
      })
      const first = await pageOf('')
      expect(first.completions).toHaveLength(100)
      expect(first.cursor).toBe(first.completions.at(-1)?.id)
      const rest = await pageOf(`?cursor=${first.cursor}&limit=1000`)
      expect(rest.completions.length).toBeGreaterThan(1)
      expect(rest.cursor).toBe(null)
      const ids = new Set([...first.completions, ...rest.completions].map(({ id }) => id))
      expect(ids.size).toBe(100 + rest.completions.length)
      const one = await pageOf(`?cursor=${first.cursor?.toUpperCase()}&limit=1`)
      expect(one.completions).toEqual(rest.completions.slice(0, 1))
    })

    it('each record of the list has every field', async () => {
      const { completions } = await pageOf('?limit=20')
      expect(completions).toHaveLength(20)
      expect(completions.flatMap((one) => missingFields(one, RECORD_FIELDS))).toEqual([])
    })

    it("the list is the caller's own unless all are asked for (part 5, rule 5)", async () => {
      const { api, service, post } = stage()
      const words = ['keys', 'create', '--account', 'another', '--json']
      const run = await runCli(words, { variables: { DATA_DIR: service.dataFolder } })
      const { key } = JSON.parse(run.stdout) as { readonly key: string }
      const made = (await post(VERIFIED_CHAT, CHAT)).value as { readonly hash: string }
      const hashesOf = async (filter: string) => {
        const target = `${VERIFIED_CHAT}?limit=1${filter}`
        const { value } = await api.call({ method: 'GET', path: VERIFIED_CHAT, target, key })
        return (
          value as { readonly completions: readonly { readonly hash: string }[] }
        ).completions.map(({ hash }) => hash)
      }
      expect(await hashesOf('')).toEqual([])
      expect(await hashesOf('&filter=mine')).toEqual([])
      expect(await hashesOf('&filter=all')).toEqual([made.hash])
    })
  })

  describe('part 4, rule 2: Fine-Tune-Authorization', () => {
    const callWith = (credential: string, key?: null) =>
      stage().api.call({
        method: 'POST',
        path: VERIFIED_CHAT,
        body: CHAT,
        headers: { 'fine-tune-authorization': credential },
        ...(key === undefined ? {} : { key }),
      })

    it('a provider credential is taken with and without Bearer', async () => {
      for (const credential of [
        'Bearer sk-own',
        'bearer sk-own',
        'sk-own',
        `Bearer ${'x'.repeat(4_096)}`,
      ])
        expect((await callWith(credential)).status).toBe(200)
    })

    it('a provider credential that cannot be one is refused', async () => {
      for (const credential of ['Bearer two words', 'Bearer', '', 'x'.repeat(4_097), 'Bearer é'])
        expectFault(
          await callWith(credential),
          ['header', 'fine-tune-authorization'],
          'value_error',
        )
    })

    it('a provider credential does not replace the key (part 5)', async () => {
      expectRefusal(await callWith('Bearer sk-own', null), 401, 'authorization_missing')
    })
  })
}
