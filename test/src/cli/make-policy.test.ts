import { expect, it } from 'vitest'
import { folderOfFile, saverIn } from '../../support/folders.ts'
import { runCommand } from '../../support/run-command.ts'

const save = saverIn(folderOfFile())
const saved = (name: string, policy: object) => save(name, JSON.stringify(policy))
const PCR0 = 'a0'.repeat(48)
const [DIGEST, ROOT, OTHER_ROOT] = ['c0'.repeat(32), 'ee'.repeat(32), 'ff'.repeat(32)]
const enclaves = { measurements: [{ PCR0 }], configurations: [DIGEST] }
const NITRO = 'docs/provider-policies/nitro.json'
const DSTACK = 'docs/provider-policies/dstack.json'

it('policy joins the parts of policies and of options, each part once', async () => {
  const own = await saved('own.json', { enclaves })
  const words = ['--from', own, '--from', NITRO, '--from', DSTACK, '--from', NITRO]
  const { code, stdout, stderr } = await runCommand('policy', ...words, '--pcr', `0=${PCR0}`)
  expect(code).toBe(0)
  const { providers, ...rest } = JSON.parse(stdout)
  expect(rest).toEqual({ enclaves })
  expect(providers.map(({ kind }: { kind: string }) => kind)).toEqual(['nitro', 'dstack'])
  expect(stderr).toContain('any operating system is accepted')
})

it('policy joins no policies whose roots or signers could widen each other', async () => {
  const own = await saved('own.json', { enclaves })
  const developed = await saved('developed.json', { enclaves: { ...enclaves, roots: [ROOT] } })
  const other = await saved('other.json', { enclaves: { ...enclaves, roots: OTHER_ROOT } })
  const refused = await runCommand('policy', '--from', own, '--from', developed)
  expect([refused.code, refused.stdout]).toEqual([2, ''])
  expect(refused.stderr).toContain('expected all policies with roots, or all without')
  const { stdout } = await runCommand('policy', '--from', other, '--from', developed)
  expect(JSON.parse(stdout).enclaves.roots).toEqual([OTHER_ROOT, ROOT])
})

it('policy show says what a policy accepts, and what it leaves open', async () => {
  const alone = await runCommand('policy', 'show', await saved('own.json', { enclaves }))
  expect([alone.code, alone.stdout]).toEqual([
    0,
    [
      'It accepts:',
      `  - An enclave with the measurements PCR0 ${PCR0}.`,
      `  - The boot configuration with SHA-256 ${DIGEST}.`,
      "  - Attestation documents under AWS's root.",
      '',
      'It leaves open:',
      '  - Measurements do not say who built the code, or whether it was revoked.',
      '  - It names no providers, so it does not say what ran on the machine of the model.',
      '  - It does not show that an answer is true. Only an endpoint of the chain shows that the ' +
        'chain has its block.',
      '',
    ].join('\n'),
  ])
  const { stdout } = await runCommand('policy', 'show', NITRO, '--json')
  const { accepts, open } = JSON.parse(stdout)
  expect(accepts).toContain('No other provider is accepted.')
  expect(open).toContain('It names no enclaves, so any program could have signed an answer.')
})

it.each(['tinfoil', 'tinfoil-model', 'dstack', 'aci'])(
  'policy show explains the example %s',
  async (name) => {
    const { code, stdout } = await runCommand(
      'policy',
      'show',
      `docs/provider-policies/${name}.json`,
    )
    expect(code).toBe(0)
    expect(stdout).toMatch(/ {2}- Answers of the provider at https:/)
    expect(stdout).not.toMatch(/undefined|\[object/)
  },
)

it.each([
  ['audit', ['https://gateway.example']],
  ['attestation', [NITRO]],
  ['proxy', ['--url', 'https://gateway.example']],
])('%s refuses a policy that has no enclaves', async (command, words) => {
  const { code, stderr } = await runCommand(command, ...words, '--policy', NITRO)
  expect([code, stderr]).toEqual([2, expect.stringContaining('nitro.json to have enclaves')])
})

it('provider refuses a policy that has no providers, and verify refuses other options', async () => {
  const own = await saved('own.json', { enclaves })
  const provider = await runCommand('provider', NITRO, '--policy', own)
  expect([provider.code, provider.stderr]).toEqual([2, expect.stringContaining('have providers')])
  const verified = await runCommand('verify', NITRO, '--policy', own, '--any-measurement')
  expect([verified.code, verified.stderr]).toEqual([
    2,
    expect.stringContaining('expected --policy alone'),
  ])
})
