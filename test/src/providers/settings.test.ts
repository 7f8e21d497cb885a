import { expect, it } from 'vitest'
import { readGatewayConfig } from '#src/config.ts'

const read = (variables: Readonly<Record<string, string>>) => readGatewayConfig(variables).providers

it('no provider is attested by default, and collateral comes from its makers', () => {
  expect(read({})).toEqual({
    attested: new Map(),
    intervalMs: 6 * 3_600_000,
    origins: {
      pcs: 'https://api.trustedservices.intel.com',
      certificates: 'https://certificates.trustedservices.intel.com',
      kds: 'https://kdsintf.amd.com',
      builds: 'https://api.github.com',
    },
  })
})

it('a provider has a kind, or a kind and a signed build', () => {
  const build = { repository: 'example/model', digest: 'ab'.repeat(32) }
  const providers = { tinfoil: 'tinfoil', other: { kind: 'tinfoil', ...build } }
  expect(read({ ATTESTED_PROVIDERS: JSON.stringify(providers) }).attested).toEqual(
    new Map([
      ['tinfoil', { kind: 'tinfoil', build: null }],
      ['other', { kind: 'tinfoil', build }],
    ]),
  )
})

it.each([
  ['no JSON', '{'],
  ['a list', '["tinfoil"]'],
  ['an unknown kind', '{"tinfoil":"sgx"}'],
  ['a name that no table has', '{"Tin foil":"tinfoil"}'],
  ['a build without digest', '{"tinfoil":{"kind":"tinfoil","repository":"a/b"}}'],
  [
    'a repository that leaves its path',
    `{"tinfoil":{"kind":"tinfoil","repository":"a/..","digest":"${'ab'.repeat(32)}"}}`,
  ],
])('the setting ATTESTED_PROVIDERS refuses %s', (_, text) => {
  expect(() => read({ ATTESTED_PROVIDERS: text })).toThrow(/ATTESTED_PROVIDERS: expected/)
})

it.each(['http://pcs.example', 'https://pcs.example/mirror', 'https://pcs.example/'])(
  'the setting INTEL_PCS_URL refuses %s, which is no https origin',
  (text) => {
    expect(() => read({ INTEL_PCS_URL: text })).toThrow(/INTEL_PCS_URL: expected/)
  },
)
