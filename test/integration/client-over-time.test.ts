import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import { type Affidavit, type ConnectOptions, connect } from '#client/index.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../support/build-release.ts'
import { type ClosingProxy, startClosingProxy } from '../support/closing-proxy.ts'
import { OPERATOR_KEY, OPERATOR_SECRET, STRANGER_SECRET } from '../support/release-stage.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let proxy: ClosingProxy
let trusted: Pick<ConnectOptions, 'url' | 'apiKey' | 'policy'>
let expected: {
  readonly measurements: readonly object[]
  readonly configurations: string[]
  readonly roots: string[]
}
beforeAll(async () => {
  service = await useAffidavit()
  const policy = JSON.parse(await readFile(service.policyFile, 'utf8'))
  proxy = await startClosingProxy(service.url)
  trusted = { url: proxy.url, apiKey: service.apiKey, policy }
  expected = policy.enclaves
})
beforeEach(() => {
  proxy.endsReused = false
  proxy.answers = Promise.resolve()
  proxy.asked.length = 0
})
afterAll(() => proxy.close())

const POSTED = 'POST /v1/verified/chat/completions'
const call = (affidavit: Affidavit, more: object = {}) =>
  affidavit.fetch(`${affidavit.baseURL}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({
      model: 'demo/echo',
      messages: [{ role: 'user', content: 'Hello over time' }],
      ...more,
    }),
  })
const posts = () => proxy.asked.filter((asked) => asked === POSTED).length

describe('a gateway that was restarted', () => {
  it('a restart of the gateway fails no connect and no read of models or evidence', async () => {
    proxy.endsReused = true
    const affidavit = await connect(trusted)
    expect(affidavit.notaries.length).toBeGreaterThan(0)
    await affidavit.refresh()
    const models = await affidavit.fetch(`${affidavit.baseURL}/models`)
    expect(models.status).toBe(200)
    await models.text()
    proxy.endsReused = false
    await (await call(affidavit)).text()
    const proof = affidavit.proofs.latest
    proxy.endsReused = true
    if (proof === undefined) throw new Error('expected a proof')
    const { report } = await affidavit.anchored(proof)
    expect(report.verdict).not.toBe('invalid')
  })

  it('a gateway that closes every connection is asked twice and reported as unreachable', async () => {
    const closed = await startClosingProxy('http://127.0.0.1:1')
    const connecting = connect({ ...trusted, url: closed.url })
    await expect(connecting).rejects.toMatchObject({ code: 'unreachable' })
    expect(closed.asked).toEqual(['GET /v1/notaries', 'GET /v1/notaries'])
    await closed.close()
  })

  it.each([true, false])(
    'a completion is never sent twice to a gateway that was restarted (encrypted: %s)',
    async (encrypt) => {
      const affidavit = await connect({ ...trusted, encrypt })
      proxy.endsReused = true
      // The client keeps its connection from the reading, so the call uses a closed connection.
      await expect(call(affidavit).then((answer) => answer.text())).rejects.toThrow()
      expect(posts()).toBe(1)
    },
  )
})

describe('a newer release list', () => {
  const entry = (more: Partial<ReleaseEntry> = {}) => {
    const [measured] = expected.measurements
    const { PCR0, PCR1, PCR2 } = measured as Record<'PCR0' | 'PCR1' | 'PCR2', string>
    const [configuration] = expected.configurations
    if (configuration === undefined) throw new Error('expected a configuration')
    return buildEntry({
      release: buildRelease({ measurements: { PCR0, PCR1, PCR2 }, configuration }),
      ...more,
    })
  }
  const other = () => {
    const [configuration = ''] = expected.configurations
    return buildEntry({ release: buildOtherRelease({ configuration }) })
  }
  const listOf = (day: number, releases: readonly ReleaseEntry[], secret = OPERATOR_SECRET) =>
    signReleaseList({ issued_at: `2026-03-0${day}T00:00:00Z`, releases }, secret)
  const revoked = () => {
    const why = { at: '2026-03-04T00:00:00Z', reason: 'its parser was unsafe' }
    return listOf(5, [entry({ revoked: why }), other()])
  }
  const open = (more: Partial<ConnectOptions> = {}) => {
    const releases = listOf(3, [entry()])
    const { roots } = expected
    const enclaves = { releases, releaseKeys: OPERATOR_KEY, roots }
    return connect({ ...trusted, policy: { enclaves }, ...more })
  }

  it.each([true, false])(
    'a release list that revokes the release ends calls to its enclaves (encrypted: %s)',
    async (encrypt) => {
      const affidavit = await open({ encrypt })
      await (await call(affidavit)).text()
      expect(posts()).toBe(1)
      await expect(affidavit.updateReleases(revoked())).rejects.toMatchObject({
        code: 'no_notary',
        message: expect.stringContaining('its parser was unsafe'),
      })
      expect(affidavit.notaries).toEqual([])
      for (let count = 0; count < 2; count++)
        await expect(call(affidavit).then((answer) => answer.text())).rejects.toMatchObject({
          code: 'no_notary',
        })
      expect(posts()).toBe(1)
    },
  )

  it.each([true, false])(
    'a release list that revokes the release refuses an answer on its way (stream: %s)',
    async (stream) => {
      const affidavit = await open()
      const gate = Promise.withResolvers<void>()
      proxy.answers = gate.promise
      const answered = call(affidavit, { stream }).then((answer) => answer.text())
      await expect.poll(posts).toBe(1)
      const updated = affidavit.updateReleases(revoked())
      gate.resolve()
      await Promise.all([
        expect(answered).rejects.toMatchObject({ code: 'unknown_notary' }),
        expect(updated).rejects.toMatchObject({ code: 'no_notary' }),
      ])
      expect(affidavit.proofs.latest).toBeUndefined()
    },
  )

  it.each<[string, () => object | readonly object[]]>([
    ['is older than the one in use', () => listOf(2, [entry()])],
    ['is left out', () => signRelease(entry().release, OPERATOR_SECRET)],
    ['is none at all', () => []],
  ])(
    'a release list is refused when it %s, and the one before stays in use',
    async (_, releases) => {
      const affidavit = await open()
      await expect(affidavit.updateReleases(releases() as object)).rejects.toMatchObject({
        code: expect.stringMatching(/^(older_releases|invalid_options)$/),
      })
      expect(affidavit.notaries).not.toEqual([])
      expect((await call(affidavit)).status).toBe(200)
    },
  )

  it('a release list of a signer whom connect was not given is refused', async () => {
    const affidavit = await open()
    const foreign = listOf(6, [entry()], STRANGER_SECRET)
    await expect(affidavit.updateReleases(foreign)).rejects.toMatchObject({
      code: 'invalid_options',
    })
  })
})
