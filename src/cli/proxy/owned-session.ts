import { encodeHex, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import { printable } from '#attestation/report/printable.ts'
import type { Affidavit } from '#client/connect.ts'
import { AffidavitError, messageOf } from '#client/errors.ts'
import { type Fetch, leavable } from '#client/gateway.ts'
import type { LostRequests } from '#client/session.ts'
import { throwNotKept } from './caller-errors.ts'
import type { SessionFile } from './session-file.ts'

/**
 * A session that belongs to the first key that had a checked call in it. Every program of the
 * machine can call the proxy, but only the owner adds calls to the session, and ends it.
 */
export type OwnedSession = {
  /** Uses the key for evidence if the session belongs to it. */
  recognize(apiKey: string | null): void
  /** Decides whether the session gets a call with this key. */
  admit(apiKey: string | null, signal: AbortSignal): Promise<SessionAdmission>
  /**
   * The key had a checked call, so the gateway knows it. It is used for evidence unless the owner's
   * key came before.
   */
  accept(apiKey: string | null): void
}

export type SessionAdmission = {
  readonly fetch: Fetch
  readonly isOutside: boolean
  /** Must be called after the call. */
  leave(): void
}

/** The only call in a session without an owner. */
type Claim = { readonly owner: string; readonly ended: Promise<void> }

export function openOwnedSession(
  affidavit: Pick<Affidavit, 'fetch' | 'startSession'>,
  file: SessionFile,
): OwnedSession {
  let { owner } = file
  let claim: Claim | null = null
  let isOwnerKnown = false
  /** The callers of lost calls, by the calls' ids. A session without an owner can have several. */
  const callers = new Map<string, string>()
  const current = () => owner ?? claim?.owner
  /** The writing of lost calls. `fetch` ends after it. */
  let keeping: Promise<void> = Promise.resolve()
  const keepLost = (lost: LostRequests) => {
    const kept = file.keepLost(session.id, lost).catch((fault: unknown) => {
      process.stderr.write(
        `a request without an answer could not be kept: ${printable(messageOf(fault))}\n`,
      )
    })
    keeping = keeping.then(() => kept)
  }
  const session = affidavit.startSession({
    async onProof(proof) {
      const first = owner === null ? claim : null
      try {
        if (first !== null) await file.keepOwner(session.id, first.owner)
        await file.keep(proof)
      } catch (fault) {
        throwNotKept(fault)
      }
      if (first === null) return
      owner = first.owner
      // The lost calls of other keys do not belong to the session.
      for (const [call, by] of callers) if (by !== owner) keepLost({ call, unanswered: [] })
    },
    onLost(lost) {
      callers.set(lost.call, current() ?? '')
      keepLost(lost)
    },
    isOwn: (call) => (callers.get(call) ?? current()) === current(),
    ...(file.start === undefined ? {} : { start: file.start }),
  })
  const fetch: Fetch = async (input, init) => {
    if (file.isFull())
      throw new AffidavitError(
        'invalid_request',
        'expected no call after a session that is as large as `affidavit verify` reads: use a ' +
          'new file',
      )
    try {
      return await session.fetch(input, init)
    } finally {
      await keeping
    }
  }

  function claimSession(by: string): SessionAdmission {
    let leave: () => void = () => undefined
    const left = new Promise<void>((resolve) => {
      leave = resolve
    })
    const ended = left.then(session.ended).then(() => {
      claim = null
    })
    claim = { owner: by, ended }
    return { fetch, isOutside: false, leave }
  }

  return {
    recognize(apiKey) {
      if (ownerOf(session.id, apiKey) !== owner) return
      isOwnerKnown = true
      file.complete(apiKey, session)
    },
    async admit(apiKey, signal) {
      const by = ownerOf(session.id, apiKey)
      while (owner === null && claim !== null) await leavable(claim.ended, signal)
      if (owner === null) return claimSession(by)
      const isOutside = by !== owner
      return { fetch: isOutside ? affidavit.fetch : fetch, isOutside, leave: () => undefined }
    },
    accept(apiKey) {
      if (ownerOf(session.id, apiKey) === owner) isOwnerKnown = true
      else if (isOwnerKnown) return
      file.complete(apiKey, session)
    },
  }
}

/** 64 hex digits, which do not show the key. */
function ownerOf(id: string, apiKey: string | null): string {
  return encodeHex(sha256(encodeUtf8(`${id} ${apiKey ?? ''}`)))
}
