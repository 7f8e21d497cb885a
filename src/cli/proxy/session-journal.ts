import { open, readFile, truncate } from 'node:fs/promises'
import { SESSION_ID, type SessionPlace } from '#attestation/demands.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { formsOf } from '#attestation/json/forms.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { printable } from '#attestation/report/printable.ts'
import { parseUnanswered } from '#attestation/unanswered.ts'
import { messageOf } from '#client/errors.ts'
import type { Proof } from '#client/proof.ts'
import type { LostRequests, SessionStart } from '#client/session.ts'
import { CliError, EXIT_CODES } from '../faults.ts'

/** A call whose evidence waits for its anchor. */
export type KeptCall = Pick<Proof, 'evidence'>

/**
 * What a session file's journal has, one JSON object per line: evidence, the owner, and the
 * requests without an answer.
 */
export type KeptSession = {
  readonly calls: readonly KeptCall[]
  /** Undefined: the journal has no line. */
  readonly start: SessionStart | undefined
  /** 64 hex digits, see ownerOf. Null before the first checked call. */
  readonly owner: string | null
}

export type Journal = {
  addCall(proof: Proof): Promise<void>
  addOwner(id: string, owner: string): Promise<void>
  addLost(id: string, lost: LostRequests): Promise<void>
  /** Bytes. */
  size(): number
  close(): Promise<void>
}

const OWNER_FORMAT = 'affidavit-session-owner'
const LOST_FORMAT = 'affidavit-session-lost'

/** Throws CliError. */
export async function openJournal(path: string): Promise<Journal> {
  const file = await open(path, 'a', 0o600).catch((fault: unknown) => {
    throw new CliError(`cannot write ${printable(path)}: ${messageOf(fault)}`)
  })
  let { size } = await file.stat()
  let isBroken = false
  let queue: Promise<unknown> = Promise.resolve()

  /** Adds a line and waits for the disk. If this fails, the file is as before. */
  async function write(line: string): Promise<void> {
    if (isBroken) throw new CliError(`${printable(path)} cannot be written any longer`)
    try {
      await file.appendFile(line)
      await file.datasync()
      size += Buffer.byteLength(line)
    } catch (fault) {
      // Part of the line would make the next line unreadable.
      await file.truncate(size).catch(() => {
        isBroken = true
      })
      throw fault
    }
  }
  function add(line: string): Promise<void> {
    const adding = queue.then(() => write(line))
    queue = adding.catch(() => undefined)
    return adding
  }
  const addStatement = (statement: object) => add(`${JSON.stringify(statement)}\n`)

  return {
    addCall: (proof) => add(proof.save()),
    addOwner: (id, owner) => addStatement({ format: OWNER_FORMAT, version: 1, id, owner }),
    addLost(id, { call, unanswered }) {
      const stated = unanswered.length === 0 ? {} : { unanswered }
      return addStatement({ format: LOST_FORMAT, version: 1, id, call, ...stated })
    },
    size: () => size,
    async close() {
      await queue
      await file.close()
    },
  }
}

const LINE_FEED = 0x0a

/**
 * Throws CliError. Cuts off a last line that a crash left incomplete. The caller did not receive
 * the end of that call's answer.
 */
export async function readJournal(path: string): Promise<KeptSession> {
  const bytes = await readFile(path).catch((fault: NodeJS.ErrnoException) => {
    if (fault.code === 'ENOENT') return Buffer.alloc(0)
    throw new CliError(`cannot read ${printable(path)}: ${messageOf(fault)}`)
  })
  const session = createKeptSession()
  let place = 0
  let count = 0
  // A text of the whole file could be longer than a string may be.
  for (let end = bytes.indexOf(LINE_FEED); end !== -1; end = bytes.indexOf(LINE_FEED, place)) {
    count += 1
    try {
      session.add(parseExactJson(bytes.subarray(place, end)))
    } catch (fault) {
      throw new CliError(
        `line ${count} of ${printable(path)}: ${printable(messageOf(fault))}`,
        EXIT_CODES.usage,
      )
    }
    place = end + 1
  }
  if (place < bytes.length) await truncate(path, place)
  return session.read()
}

const { hexOf, invalid, membersOf, textOf } = formsOf('invalid_journal')
const OWNER_BYTES = 32
const CALL_BYTES = 8

function createKeptSession() {
  const calls: KeptCall[] = []
  const lost = new Map<string, LostRequests['unanswered']>()
  let id: string | null = null
  let owner: string | null = null
  let last: SessionPlace | null = null

  const lastHash = () => calls.at(-1)?.evidence.record.hash ?? null
  function checkId(value: Json | undefined): void {
    const stated = textOf(value, 'id', SESSION_ID)
    if (id !== null && stated !== id) throw invalid('id', 'that of the lines before')
    id = stated
  }
  function addCall(json: Json): void {
    const evidence = parseEvidenceBundle(json)
    const session = placeOf(evidence)
    if (session === undefined) throw invalid('the call', 'of a session')
    checkId(session.id)
    const previous = lastHash()
    if (session.n !== calls.length || session.previous !== previous || last?.last === true)
      throw invalid('the call', 'the next one of the session')
    calls.push({ evidence })
    last = session
  }
  function addLost(json: JsonObject): void {
    const hasRequests = Object.hasOwn(json, 'unanswered')
    const names = ['format', 'version', 'id', 'call'] as const
    const members = membersOf(json, 'it', hasRequests ? [...names, 'unanswered'] : names)
    checkId(members.id)
    const call = hexOf(members.call, 'call', CALL_BYTES)
    if (hasRequests) lost.set(call, parseUnanswered(memberOf(json, 'unanswered')))
    else lost.delete(call)
  }
  function addOwner(json: JsonObject): void {
    const members = membersOf(json, 'it', ['format', 'version', 'id', 'owner'])
    checkId(members.id)
    owner = hexOf(members.owner, 'owner', OWNER_BYTES)
  }
  function readStart(): SessionStart | undefined {
    if (id === null) return undefined
    const unanswered = [...lost.values()].flat()
    const place = last === null ? { n: 0, previous: null } : { n: last.n + 1, previous: lastHash() }
    return {
      id,
      ...place,
      ...(unanswered.length === 0 ? {} : { unanswered }),
      ...(last?.last === undefined ? {} : { isEnded: true }),
    }
  }

  return {
    /** Throws FormatError. */
    add(json: Json): void {
      const isStatement = isJsonObject(json) && memberOf(json, 'version') === 1
      const format = isStatement ? memberOf(json, 'format') : undefined
      if (isStatement && format === OWNER_FORMAT) addOwner(json)
      else if (isStatement && format === LOST_FORMAT) addLost(json)
      else addCall(json)
    },
    read: (): KeptSession => ({ calls, start: readStart(), owner }),
  }
}

export function placeOf({ record }: EvidenceBundle): SessionPlace | undefined {
  if (!('request' in record)) return undefined
  return DIALECTS[record.receipt.dialect].demandsOf(record.request).session
}
