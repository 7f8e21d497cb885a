import { describe, expect, it } from 'vitest'
import { createRunLines } from '#src/cli/node/run-lines.ts'
import { createLogger, type Logger } from '#src/observability/logger.ts'

/** What the agent's lines are on a terminal, without their time. */
function linesOf(logSome: (log: Logger) => void, nodeName: string | null = 'gpu-1'): string[] {
  const describeLine = createRunLines({ gatewayUrl: 'https://gateway.example', nodeName })
  const lines: string[] = []
  const write = (line: string) => void lines.push(describeLine(line))
  logSome(createLogger({ level: 'debug', destination: { write } }))
  return lines.map((line) => {
    expect(line).toMatch(/^\d\d:\d\d:\d\d {2}[^\n]*\n$/)
    return line.slice(10, -1)
  })
}

describe('createRunLines', () => {
  it('the lines of a start say what is measured, how fast it is, and what is served where', () => {
    const lines = linesOf((log) => {
      log.info({ node_id: 'a_b', name: 'gpu-1', file: '/state/nodes.json' }, 'node created')
      log.info({ backend: 'vLLM at http://127.0.0.1:8000', node_id: 'a_b' }, 'agent starts')
      log.info({ model: 'model-b', tokens_per_second: 20 }, 'benchmark known')
      log.info({ model: 'model-a', duration_ms: 60_000 }, 'benchmark begins')
      const speeds = { tokens_per_second: 1234.56, tokens_per_second_single: 84.44 }
      log.info({ model: 'model-a', ...speeds }, 'benchmark ended')
      log.info({ node_id: 'a_b', models: ['model-a', 'model-b', 'model-c'] }, 'connected')
    })
    expect(lines).toEqual([
      'Created node gpu-1 (a_b). /state/nodes.json keeps its id.',
      'The inference server is vLLM at http://127.0.0.1:8000.',
      'model-b was measured before: 20 tokens/s.',
      'Measuring model-a, for about 60 s.',
      'model-a: 1,235 tokens/s, 84.4 tokens/s for one request at a time.',
      'Connected to https://gateway.example as node gpu-1. Ready, serving model-a (1,235 tokens/s), model-b (20 tokens/s), model-c.',
    ])
  })

  it('the lines of a lost connection say why it was lost, and when the agent tries again', () => {
    const end = { code: 1012, reason: 'restarting', openMs: 3_725_000, isRequested: false }
    const lines = linesOf((log) => {
      log.info({ ...end, pause_ms: 1200 }, 'disconnected')
      log.info({ ...end, isRequested: true, pause_ms: 0 }, 'disconnected')
      const refused = { code: 1008, reason: 'Node is archived', openMs: null, isRequested: false }
      log.info({ ...refused, pause_ms: 800 }, 'disconnected')
      log.warn({ fault: 'the gateway cannot be reached (ECONNREFUSED)' }, 'not registered')
      log.error({ err: new TypeError('expected a word') }, 'not registered')
    })
    expect(lines).toEqual([
      'Disconnected after 1 h 2 min (1012): restarting. Trying again in 1.2 s.',
      'Disconnected after 1 h 2 min (1012): The gateway asked for a new connection. Trying again in 0 ms.',
      'Not connected: Node is archived. Trying again in 800 ms.',
      'warn: Not ready yet: the gateway cannot be reached (ECONNREFUSED). Trying again.',
      'error: Not ready yet: TypeError: expected a word. Trying again.',
    ])
  })

  it('a node that is named by its id is shown by its id', () => {
    expect(
      linesOf((log) => log.info({ node_id: 'a_b', models: ['m'] }, 'connected'), null),
    ).toEqual(['Connected to https://gateway.example as node a_b. Ready, serving m.'])
  })

  it('a line that has no sentence is shown with its members, and no control character passes', () => {
    const lines = linesOf((log) => {
      log.debug({ size: 3, reason: '\u001b[31mred' }, 'frame not understood')
      log.info(
        { code: 1000, reason: '\u001b[31mred', openMs: 0, isRequested: false, pause_ms: 1 },
        'disconnected',
      )
    })
    expect(lines).toEqual([
      'frame not understood size=3 reason="\\u001b[31mred"',
      'Disconnected after 0 s (1000): \\u{1b}[31mred. Trying again in 1 ms.',
    ])
  })
})
