import { createRequire } from 'node:module'
import { describe, expect, it } from 'vitest'
import { loadOptional, StartFailure, settleAll } from '#src/runtime/starting.ts'

describe('settleAll', () => {
  it('settleAll waits for the others before it throws the one failure', async () => {
    const failure = new TypeError('no')
    let isSettled = false
    const slow = new Promise<void>((resolve) => {
      setTimeout(() => {
        isSettled = true
        resolve()
      }, 50)
    })
    await expect(settleAll([Promise.reject(failure), slow])).rejects.toBe(failure)
    expect(isSettled).toBe(true)
  })

  it('settleAll reports several failures as one', async () => {
    const failing = settleAll([
      Promise.reject(new Error('a')),
      Promise.resolve(1),
      Promise.reject(new Error('b')),
    ])
    await expect(failing).rejects.toThrow(StartFailure)
    await expect(failing).rejects.toThrow('a\nb')
  })

  it('settleAll reports a failure once that two parts share', async () => {
    const failure = new Error('shared')
    await expect(settleAll([Promise.reject(failure), Promise.reject(failure)])).rejects.toBe(
      failure,
    )
  })
})

describe('loadOptional', () => {
  const wanted = { purpose: 'the local chain', instead: 'set CHAIN_RPC_URL' }
  const require = createRequire(import.meta.url)

  it('loadOptional says in one sentence what to install when it is not there', async () => {
    const failing = loadOptional('@nobody/none', () => require.resolve('@nobody/none'), wanted)
    await expect(failing).rejects.toThrow(StartFailure)
    await expect(failing).rejects.toThrow(
      'the local chain needs the package @nobody/none, which is not installed: run npm install without --omit=optional, or set CHAIN_RPC_URL',
    )
  })

  it('loadOptional does not take a fault of a package that is there for its absence', async () => {
    const fault = new TypeError('broken inside')
    await expect(loadOptional('zod', () => Promise.reject(fault), wanted)).rejects.toBe(fault)
  })
})
