import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import type { DemoReady } from '#src/local/demo/config.ts'

const MAIN = join(import.meta.dirname, '../../../../src/local/demo/main.ts')
const started: ChildProcess[] = []

function start(env: Record<string, string>): ChildProcess {
  const child = fork(MAIN, [], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  started.push(child)
  return child
}

afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL')
})

describe('the demo provider’s process', () => {
  it('the demo provider’s process tells its parent where it listens and ends when the parent is gone', async () => {
    const child = start({ DEMO_PORT: '' })
    const [ready] = (await once(child, 'message')) as [DemoReady]
    expect(ready).toEqual({
      kind: 'ready',
      origin: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
      attested: null,
    })
    expect((await fetch(`${ready.origin}/v1/models`)).status).toBe(200)
    child.disconnect()
    const [code] = await once(child, 'exit')
    expect(code).toBe(0)
  })

  it('the demo provider’s process names every fault of its configuration and exits 1', async () => {
    const child = start({ DEMO_PORT: '65536', DEMO_DELAY_MS: '-1' })
    let text = ''
    child.stderr?.on('data', (part) => {
      text += part
    })
    const [code] = await once(child, 'close')
    expect(code).toBe(1)
    expect(text).toContain('DEMO_PORT: expected a whole number from 0 to 65535, got "65536"')
    expect(text).toContain('DEMO_DELAY_MS: expected a whole number from 0 to 60000, got "-1"')
  })

  it('the demo provider’s process says which address is taken and exits 1', async () => {
    const first = start({ DEMO_PORT: '0' })
    const [{ origin }] = (await once(first, 'message')) as [DemoReady]
    const second = start({ DEMO_PORT: new URL(origin).port })
    let text = ''
    second.stderr?.on('data', (part) => {
      text += part
    })
    const [code] = await once(second, 'close')
    expect(code).toBe(1)
    expect(text).toContain(`cannot listen on 127.0.0.1:${new URL(origin).port}`)
  })
})
