import cluster from 'node:cluster'
import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readGatewayConfig } from '#src/config.ts'
import { superviseProcesses, variablesOf } from '#src/processes.ts'
import { recordLog } from '../support/chain.ts'

describe('the variables of one process of several', () => {
  it('the variables of one process give it ports, sockets and, in development, a folder that no other one has', () => {
    const config = readGatewayConfig({
      METRICS_PORT: '9464',
      CONTROL_SOCKET: '/run/affidavit.sock',
      DATA_DIR: 'data',
    })
    expect([0, 1].map((place) => variablesOf(place, config))).toEqual([
      {
        METRICS_PORT: '9464',
        CONTROL_SOCKET: '/run/affidavit.sock.0',
        DATA_DIR: resolve('data/process-0'),
      },
      {
        METRICS_PORT: '9465',
        CONTROL_SOCKET: '/run/affidavit.sock.1',
        DATA_DIR: resolve('data/process-1'),
      },
    ])
  })

  it('the ports of a process are those of all where each finds a free one by itself, or none is wanted', () => {
    const config = readGatewayConfig({ METRICS_PORT: '0', DATA_DIR: 'data' })
    expect(Object.keys(variablesOf(1, config))).toEqual(['DATA_DIR'])
  })
})

it('a gateway whose processes cannot be started ends with an error', async () => {
  cluster.setupPrimary({ cwd: '/nowhere' })
  const config = { ...readGatewayConfig({ NODE_ENV: 'test' }), processes: 2 }
  const { log, lines } = recordLog()
  expect(await superviseProcesses(config, { log, onHangup: () => {} })).toBe(1)
  expect(JSON.stringify(lines)).toContain('process failed')
})
