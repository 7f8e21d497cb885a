import {
  FRAME_BYTES_MAX,
  IMAGE_FRAME_BYTES_MAX,
  LARGE_FRAME_BYTES_MAX,
} from '../protocol/frames.ts'

/**
 * All limits and times for nodes. Times are milliseconds, sizes are bytes, unless the name says
 * otherwise.
 */
export type NodeLimits = {
  /**
   * Maximum number of connected nodes. Further nodes are closed with 1013, which makes clients back
   * off. A node takes about 15 KB of memory.
   */
  readonly connectionsMax: number
  /**
   * Maximum number of handshakes under way, whose nodes are not known yet. Further handshakes get
   * 503.
   */
  readonly handshakesMax: number
  /** Time for the registry's answers during a handshake; then the socket is destroyed. */
  readonly handshakeTimeoutMs: number
  /**
   * When a node connects again, its old connection must answer a ping within this time. Otherwise
   * the new connection replaces it.
   */
  readonly takeoverMs: number
  /** Time for the node to finish a closing handshake; then the socket is destroyed. */
  readonly closeTimeoutMs: number
  /**
   * Largest frame from a node; a larger frame closes the connection with 1009. A chunk has some
   * hundred bytes, with logprobs some thousand.
   */
  readonly frameBytesMax: number
  /**
   * Largest frame from a DIFFUSION node that answers: ten images of 1,024 pixels. While no answer
   * is awaited, the limit is `frameBytesMax`.
   */
  readonly imageFrameBytesMax: number
  /**
   * Maximum number of bytes of answers with images that are under way, for all nodes together.
   * Beyond this, calls for images are refused.
   */
  readonly imageBytesMax: number
  /**
   * Largest frame to a node. The public client takes 1 MiB; after a larger frame, it closes with
   * 1009 and loses all its runs.
   */
  readonly requestBytesMax: number
  /**
   * Largest frame to a node that announced `large-frames`: a body of 10 MiB with pictures, plus the
   * bytes that serialising it again may add.
   */
  readonly largeRequestBytesMax: number
  /**
   * Maximum number of bytes that wait in memory until one node reads them, in addition to one large
   * frame. A node with more waiting bytes counts as lost.
   */
  readonly sendBytesMax: number
  /**
   * Each frame that was not asked for costs 1, plus 1 per KiB. A node may spend this much at once.
   */
  readonly strayBurst: number
  /** A node may also spend this much per second. A node that spends more is closed with 1008. */
  readonly strayPerSecond: number

  /** How many runs one node gets at the same time. */
  readonly slots: number
  /** How many runs a node with more vram than `largeVramMb` gets at the same time. */
  readonly slotsLarge: number
  readonly largeVramMb: number

  /**
   * Time until the first token, per attempt. It is long because prompts are long and contributed
   * machines are slow.
   */
  readonly firstTokenMs: number
  /** Time between two chunks that contain text or end a choice. */
  readonly tokenMs: number
  /**
   * Time to wait for the usage after every choice has finished. Some backends never send the usage.
   */
  readonly finishGraceMs: number
  /** Time of the whole run. 4,096 tokens at 5 per second are 14 minutes. */
  readonly runMs: number
  /**
   * How long a run keeps its slot after its caller has left or the run has timed out, while the
   * node still streams.
   */
  readonly drainMs: number
  /** Maximum number of bytes that wait for a slow caller, per run. */
  readonly queueBytesMax: number
  /**
   * Maximum number of bytes of all frames of one run. A larger answer ends only its own run,
   * because the caller chooses how large an answer is.
   */
  readonly answerBytesMax: number
  /**
   * Maximum number of bytes that a node may send for a run after the cancel frame. Its buffers and
   * the network's may hold that much. A node that sends more is closed with 1008.
   */
  readonly lateBytesMax: number
  /**
   * For a node that did not announce `cancel`, the limit is `answerBytesMax`, plus this much for
   * each second since the run ended. 128 choices with 20 logprobs each come near this rate.
   */
  readonly lateBytesPerSecond: number
  /**
   * Time until the images arrive, per attempt. A contributed machine takes a minute or more for ten
   * large images.
   */
  readonly imageMs: number
  /**
   * Deepest nesting of a chunk; the chunk itself counts. The limit is needed because serialising it
   * again is recursive.
   */
  readonly chunkDepthMax: number

  /** How many other nodes are tried before the first token. */
  readonly retriesMax: number
  /** How many callers may wait for one model. */
  readonly waitersMax: number
  /** How long each caller waits. */
  readonly waitMs: number

  /** How many failures in a row set a node aside. */
  readonly failuresMax: number
  /**
   * How long a node is set aside at first. Each failed probe doubles this time, up to `asideMaxMs`.
   */
  readonly asideMs: number
  readonly asideMaxMs: number
  /**
   * How many errors in a row a node may report for callers' requests before it is probed. An answer
   * in between resets the count. The requests may have caused the errors; a probe is our own
   * request.
   */
  readonly refusalsMax: number

  /**
   * Lowest speed, tokens per second. A node needs a stored benchmark of at least this speed to
   * connect. A slower node is degraded.
   */
  readonly tokensPerSecondMin: number
  /** Time until the first token of a probe. A node that takes longer is too slow. */
  readonly probeFirstTokenMs: number
  /** Time for a probe's small image. A node that takes longer is too slow. */
  readonly probeImageMs: number
  /** Time between probes of a RUNNING node that served no call in between. */
  readonly probeIntervalMs: number
  /** Time between probes of a node that is being verified or is degraded. */
  readonly probeRetryMs: number
  /** How many probes run at the same time. */
  readonly probesMax: number

  /**
   * The protocol's ping: its interval, the time for the node's answer, and the number of unanswered
   * pings in a row that closes the connection.
   */
  readonly pingMs: number
  readonly pingTimeoutMs: number
  readonly pingMissesMax: number
  /**
   * After this much silence, a connection gets a WebSocket ping, which the client's library
   * answers.
   */
  readonly silenceMs: number
  /**
   * Time for the answer to that ping. After this time, the connection is half-open and is
   * destroyed.
   */
  readonly silenceTimeoutMs: number
  readonly healthMs: number
  /**
   * Age of a connection at which an idle node is asked to connect again, so that load balancers can
   * distribute the nodes again.
   */
  readonly reconnectMs: number
  /**
   * How often connected nodes are stored as still present. After a kill, their uptime counts up to
   * this time.
   */
  readonly seenMs: number
  /**
   * How often dead gateways' nodes are searched for. Such a node is shown as connected this much
   * longer than the lease of its gateway.
   */
  readonly abandonedMs: number
  /**
   * How often the keys of connected nodes are checked. Together with KEY_AGE_MAX_MS, the
   * connections of a revoked key end within a second.
   */
  readonly keyCheckMs: number
  /** How often the registration of a connected node is read again. */
  readonly recheckMs: number

  /** Interval of the only timer. Deadlines of runs and waiters are exact to this interval. */
  readonly tickMs: number
  /** How often every connection sends its due frames. */
  readonly tendMs: number
  /**
   * How many served runs are kept while the database is away. Beyond this, the oldest are dropped,
   * and a log line reports it.
   */
  readonly inferencesMax: number
}

/**
 * The default limits. Ping and slot figures are the deployed service's; the reasons for the others
 * are above.
 */
export const NODE_LIMITS: NodeLimits = {
  connectionsMax: 20_000,
  handshakesMax: 256,
  handshakeTimeoutMs: 10_000,
  takeoverMs: 2_000,
  closeTimeoutMs: 5_000,
  frameBytesMax: FRAME_BYTES_MAX,
  imageFrameBytesMax: IMAGE_FRAME_BYTES_MAX,
  imageBytesMax: 512 * 1024 * 1024,
  requestBytesMax: FRAME_BYTES_MAX,
  largeRequestBytesMax: LARGE_FRAME_BYTES_MAX,
  sendBytesMax: 8 * 1024 * 1024,
  strayBurst: 2_000,
  strayPerSecond: 200,

  slots: 10,
  slotsLarge: 20,
  largeVramMb: 80_000,

  firstTokenMs: 30_000,
  tokenMs: 30_000,
  finishGraceMs: 2_000,
  runMs: 30 * 60_000,
  drainMs: 60_000,
  queueBytesMax: 4 * 1024 * 1024,
  answerBytesMax: 64 * 1024 * 1024,
  lateBytesMax: 16 * 1024 * 1024,
  lateBytesPerSecond: 8 * 1024 * 1024,
  imageMs: 120_000,
  chunkDepthMax: 32,

  retriesMax: 2,
  waitersMax: 256,
  waitMs: 5_000,

  failuresMax: 3,
  asideMs: 10_000,
  asideMaxMs: 300_000,
  refusalsMax: 5,

  tokensPerSecondMin: 1,
  probeFirstTokenMs: 20_000,
  probeImageMs: 60_000,
  probeIntervalMs: 600_000,
  probeRetryMs: 60_000,
  probesMax: 64,

  pingMs: 600_000,
  pingTimeoutMs: 10_000,
  pingMissesMax: 3,
  silenceMs: 30_000,
  silenceTimeoutMs: 20_000,
  healthMs: 600_000,
  reconnectMs: 24 * 60 * 60_000,
  seenMs: 60_000,
  abandonedMs: 2_000,
  keyCheckMs: 400,
  recheckMs: 600_000,

  tickMs: 100,
  tendMs: 1_000,
  inferencesMax: 10_000,
}
