import { describe, expect, it } from 'vitest'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { hasProviderChain, providerLinks } from '#src/web/verify/provider-links.ts'
import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../../../attestation/evidence/build-attested.ts'
import { buildEvidence } from '../../../attestation/evidence/build-evidence.ts'

const { bundle, policy } = buildAttested()
const { providers: _, ...withoutPolicy } = policy
const judge = (given: object, demanded = policy) =>
  verifyBundle(JSON.parse(JSON.stringify(given)) as Json, demanded)

describe("the chain of the provider's machine", () => {
  it('each link holds of accepted evidence, but for a GPU that there is not', async () => {
    const links = providerLinks(await judge(bundle))
    expect(links.map(({ name, state }) => [name, state])).toEqual([
      ['key', 'holds'],
      ['machine', 'holds'],
      ['model-code', 'holds'],
      ['gpu', 'open'],
      ['weights', 'holds'],
    ])
    expect(links.at(-1)?.lines[0]?.[1]).toMatch(/^proven: example-31b/)
    expect(links.every(({ lines }) => lines.length > 0)).toBe(true)
  })

  it('a GPU that signed evidence holds', async () => {
    const { bundle, policy } = buildAttested('tinfoil v3 SNP')
    const links = providerLinks(await judge(bundle, policy))
    expect(links.find(({ name }) => name === 'gpu')?.state).toBe('holds')
  })

  it('the weights of a model that is not measured are unknown, with the reason', async () => {
    const other = buildAttested(undefined, undefined, {
      record: { response: { id: '1', model: 'another' } },
    })
    const [weights] = providerLinks(await judge(other.bundle, other.policy)).slice(-1)
    expect(weights).toMatchObject({ state: 'open', why: expect.stringMatching(/^unknown: /) })
  })

  it('every check of the evidence is in one link, and no other link holds after a broken one', async () => {
    const swapped = withProvider(bundle, buildProvider('dstack').bytes)
    const report = await judge(swapped)
    const links = providerLinks(report)
    expect(links.flatMap(({ checks }) => checks)).toHaveLength(report.providerChecks.length + 2)
    expect(links.filter(({ state }) => state === 'broken').map(({ name }) => name)).toEqual([
      'machine',
    ])
    expect(links.some(({ state }) => state === 'holds')).toBe(false)
  })

  it('no link holds when the first chain does not show whose key answered', async () => {
    const { roots: __, ...ofAws } = policy
    const changed = structuredClone(bundle) as { record: { signature: string } }
    changed.record.signature = changed.record.signature.replace(/^0x../, '0x00')
    for (const report of [await judge(bundle, ofAws), await judge(changed)]) {
      const links = providerLinks(report)
      expect(links.filter(({ state }) => state === 'void').map(({ name }) => name)).toEqual([
        'key',
        'machine',
        'model-code',
        'weights',
      ])
    }
  })

  it('the key does not hold when the code that states it is not accepted', async () => {
    const checks = (await judge(bundle)).providerChecks.map((check) =>
      check.name === 'code' ? { ...check, outcome: 'failed' as const } : check,
    )
    const links = providerLinks({ ...(await judge(bundle)), providerChecks: checks })
    expect(links.find(({ name }) => name === 'key')).toMatchObject({ state: 'void', why: 'Code' })
  })

  it('no link holds of evidence that no policy judged under an unknown root', async () => {
    const links = providerLinks(await judge(bundle, withoutPolicy))
    expect(links.some(({ state }) => state === 'holds')).toBe(false)
  })

  it('a bundle has no such chain without evidence and without a policy', async () => {
    const plain = await judge(buildEvidence().bundle, withoutPolicy)
    expect(hasProviderChain(plain)).toBe(false)
    expect(hasProviderChain(await judge(buildEvidence().bundle))).toBe(true)
    expect(hasProviderChain(await judge(bundle, withoutPolicy))).toBe(true)
  })
})
