import { describe, expect, it } from 'vitest'
import type { PullReply } from '../../../enclave/protocol/messages.ts'
import { EnclaveError } from '../../../src/enclaves/enclave-error.ts'
import { pullUntilEnd } from '../../../src/start/pull-until-end.ts'

const request = { from: 0, wait_ms: 10, max: 1, known_document: null }
const gone = new EnclaveError('unavailable', 'gone')
const reply: PullReply = {
  notary: '0x01',
  public_key: '0x04',
  head: { size: 1, root: '', signature: '' },
  completions: [],
  documents: { a: 'b' },
}

/** An enclave that answers once and is then gone. */
function answerOnce(): Parameters<typeof pullUntilEnd>[0] {
  let answers = 0
  return {
    pull: async () => {
      answers += 1
      if (answers > 1) throw gone
      return reply
    },
  }
}

describe('pullUntilEnd', () => {
  it('passes replies and failures on', async () => {
    const { pull } = pullUntilEnd(answerOnce())
    const { signal } = new AbortController()
    expect(await pull(request, signal)).toBe(reply)
    await expect(pull(request, signal)).rejects.toBe(gone)
  })

  it('answers with nothing more once the end is expected', async () => {
    const { pull, expectEnd } = pullUntilEnd(answerOnce())
    const { signal } = new AbortController()
    await pull(request, signal)
    expectEnd()
    expect(await pull(request, signal)).toEqual({ ...reply, head: null, documents: {} })
  })

  it('fails when nothing was ever pulled, for then it is not known whose log it is', async () => {
    const { pull, expectEnd } = pullUntilEnd({ pull: () => Promise.reject(gone) })
    expectEnd()
    await expect(pull(request, new AbortController().signal)).rejects.toBe(gone)
  })

  it('obeys the signal while it waits', async () => {
    const { pull, expectEnd } = pullUntilEnd(answerOnce())
    const interruption = new AbortController()
    await pull(request, interruption.signal)
    expectEnd()
    const waiting = pull({ ...request, wait_ms: 60_000 }, interruption.signal)
    interruption.abort()
    await expect(waiting).rejects.toThrow()
  })
})
