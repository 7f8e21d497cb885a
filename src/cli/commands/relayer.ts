import type { Command } from 'commander'
import type { RelayerDescription } from '../../api/control-operations.ts'
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
  const { formatEther } = await import('ethers')
  const list = await (await operations()).withGateway(({ relayers }) => relayers.list())
  process.stdout.write(
    json
      ? `${JSON.stringify(list, null, 2)}\n`
      : textTable(
          TITLES,
          list.map((one) => toRow(one, formatEther)),
        ),
  )
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

function toRow(
  relayer: RelayerDescription,
  formatEther: (wei: string) => string,
): readonly string[] {
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

/** Loaded where they are used: they bring the database, and the help needs none. */
function operations() {
  return import('../operations.ts')
}
