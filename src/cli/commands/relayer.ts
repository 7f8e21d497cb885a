import type { Command } from 'commander'
import { formatEther } from 'ethers'
import type { RelayerDescription } from '../../api/control-operations.ts'
import { readCliConfig } from '../config.ts'
import { withGateway } from '../operations.ts'
import { printable, textTable, timeCell } from '../printable.ts'

/** Adds `relayer`, for the operator of a gateway that runs. */
export function registerRelayer(program: Command): void {
  program
    .command('relayer')
    .description(
      'show the accounts that pay for anchors: balance, nonces, anchors that wait (CONTROL_SOCKET, or DATA_DIR)',
    )
    .option('--json', 'print one JSON array')
    .action(showRelayers)
}

async function showRelayers({ json }: { readonly json?: boolean }): Promise<void> {
  const list = await withGateway(readCliConfig(), ({ relayers }) => relayers.list())
  process.stdout.write(json ? `${JSON.stringify(list, null, 2)}\n` : textTable(TITLES, list.map(toRow)))
}

const TITLES = [
  'RELAYER',
  'USED',
  'ETHER',
  'MINED',
  'PENDING',
  'NEXT',
  'WAITING',
  'UNCONFIRMED',
  'OLDEST',
  'FAULT',
]

function toRow(relayer: RelayerDescription): readonly string[] {
  const { balance_wei: balance, oldest_at: oldest } = relayer
  return [
    relayer.address,
    relayer.current ? 'now' : 'before',
    balance === null ? '-' : formatEther(balance),
    cell(relayer.chain_nonce),
    cell(relayer.pending_nonce),
    cell(relayer.next_nonce),
    String(relayer.waiting),
    String(relayer.unconfirmed),
    timeCell(oldest),
    printable(relayer.fault) || '-',
  ]
}

function cell(value: number | null): string {
  return value === null ? '-' : String(value)
}
