import { describe, expect, it } from 'vitest'
import { BuildError } from '#enclave/image/build-error.ts'
import { parseImageOptions } from '#enclave/image/options.ts'

const CONTRACT = `0x${'aB'.repeat(20)}`
const REQUIRED = ['--chain-id', '1', '--contract', CONTRACT]

describe('parseImageOptions', () => {
  it('parseImageOptions needs chain and contract, and has defaults for all else', () => {
    expect(parseImageOptions(REQUIRED)).toEqual({
      kind: 'build',
      options: {
        output: 'build/image',
        chainId: 1,
        contract: CONTRACT.toLowerCase(),
        isDevelopment: false,
        limits: {},
        providersFile: null,
        caFile: null,
        packagesFolder: null,
        kernel: null,
        initFile: null,
        nsmModuleFile: null,
        signing: null,
      },
    })
  })

  it('parseImageOptions takes limits, in the order of their names', () => {
    const words = ['--set', 'IDLE_TIMEOUT_MS=600000', '--set', 'ANSWER_BYTES_MAX=1']
    const limits = { ANSWER_BYTES_MAX: '1', IDLE_TIMEOUT_MS: '600000' }
    expect(parseImageOptions([...REQUIRED, ...words])).toMatchObject({ options: { limits } })
  })

  it('parseImageOptions takes a kernel with its command line, and a key with its certificate', () => {
    const words = [
      '--kernel',
      'k',
      '--cmdline-file',
      'c',
      '--signing-key',
      's',
      '--signing-certificate',
      't',
    ]
    expect(parseImageOptions([...REQUIRED, ...words])).toMatchObject({
      options: {
        kernel: { file: 'k', cmdlineFile: 'c' },
        signing: { keyFile: 's', certificateFile: 't' },
      },
    })
  })

  it.each([
    [['--contract', CONTRACT], '--chain-id'],
    [['--chain-id', '9007199254740993', '--contract', CONTRACT], '--chain-id'],
    [['--chain-id', '1', '--contract', '0xab'], '--contract'],
    [[...REQUIRED, '--kernel', 'k'], '--kernel and --cmdline-file belong together'],
    [[...REQUIRED, '--signing-certificate', 'c'], 'belong together'],
    [[...REQUIRED, '--set', 'NODE_ENV=1'], '--set'],
    [[...REQUIRED, '--set', 'IDLE_TIMEOUT_MS=x'], '--set'],
    [[...REQUIRED, '--set', 'IDLE_TIMEOUT_MS=1', '--set', 'IDLE_TIMEOUT_MS=2'], 'once'],
    [[...REQUIRED, '--fast'], '--fast'],
  ])('parseImageOptions refuses %j, naming what is wrong', (words, message) => {
    expect(() => parseImageOptions(words)).toThrow(BuildError)
    expect(() => parseImageOptions(words)).toThrow(message)
  })
})
