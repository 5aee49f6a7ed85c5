// A client of `distrl serve` for Unity, Godot and .NET, with the standard library alone: copy this file.
//
//     mcs -r:System.Net.Http,System.Runtime.Serialization,System.Xml,System.Xml.Linq Client.cs
//     mono Client.exe http://127.0.0.1:8730 "[0, 0.1, 0, -0.1]" ...
//
// Each argument is an observation in JSON; all of them are of one episode. In a game, leave out the class Program.
using System;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Threading.Tasks;
using System.Xml;
using System.Xml.Linq;

/// <summary>A policy behind a URL, over connections that stay open. Its methods may be awaited in a game's loop.</summary>
public sealed class ServedPolicy : IDisposable {
    readonly HttpClient _client;
    /// <param name="url">Like http://127.0.0.1:8730, or https:// behind a proxy.</param>
    /// <param name="token">The server's token, or null.</param>
    public ServedPolicy(string url, string token = null) {
        _client = new HttpClient { BaseAddress = new Uri(url), Timeout = TimeSpan.FromSeconds(10) };
        if (!string.IsNullOrEmpty(token)) _client.DefaultRequestHeaders.Add("Authorization", "Bearer " + token);
    }

    /// <summary>The observation as JSON, for ActAsync.</summary>
    public static string Json(params float[] observation) =>
        "[" + string.Join(",", observation.Select(value => value.ToString("R", CultureInfo.InvariantCulture))) + "]";

    /// <summary>The reply for one observation: its elements are action, version and so on; those of a list are item.</summary>
    /// <param name="observation">As JSON: a list, or an object of a list for each name.</param>
    /// <param name="session">As BeginSessionAsync returns it, or null.</param>
    /// <param name="begins">Whether it is the first of an episode.</param>
    public Task<XElement> ActAsync(string observation, string session = null, bool begins = false) {
        var named = session == null ? "" : $",\"session\":\"{session}\"";
        return AskAsync(HttpMethod.Post, "/act", $"{{\"observation\":{observation}{named},\"begins\":{(begins ? "true" : "false")}}}");
    }

    /// <summary>The identifier of a new session: the memory of one sequence of episodes.</summary>
    public async Task<string> BeginSessionAsync() => (await AskAsync(HttpMethod.Post, "/sessions").ConfigureAwait(false)).Element("session").Value;

    /// <summary>Ends a session.</summary>
    public Task EndSessionAsync(string session) => AskAsync(HttpMethod.Delete, "/sessions/" + session);
    public void Dispose() => _client.Dispose();
    async Task<XElement> AskAsync(HttpMethod method, string path, string body = null) {
        using (var request = new HttpRequestMessage(method, path)) {
            if (body != null) request.Content = new StringContent(body, Encoding.UTF8, "application/json");
            using (var answer = await _client.SendAsync(request).ConfigureAwait(false)) {
                var bytes = await answer.Content.ReadAsByteArrayAsync().ConfigureAwait(false);
                var reply = XElement.Load(JsonReaderWriterFactory.CreateJsonReader(bytes, XmlDictionaryReaderQuotas.Max));
                if (reply.Element("error") == null) return reply;
                throw new IOException($"{method} {path}: {reply.Element("error").Value} (status {reply.Element("status").Value})");
            }
        }
    }
}

static class Program {
    static int Main(string[] words) {
        if (words.Length < 2) { Console.Error.WriteLine("usage: Client URL OBSERVATION ..."); return 2; }
        try { PlayAsync(words).GetAwaiter().GetResult(); return 0; }
        catch (Exception error) when (error is HttpRequestException || error is IOException || error is FormatException || error is XmlException) {
            Console.Error.WriteLine("client: " + error.Message);
            return 1;
        }
    }

    static async Task PlayAsync(string[] words) {
        using (var policy = new ServedPolicy(words[0], Environment.GetEnvironmentVariable("DISTRL_SERVE_TOKEN"))) {
            var session = await policy.BeginSessionAsync();
            for (var step = 1; step < words.Length; step++) {
                var reply = await policy.ActAsync(words[step], session, step == 1);
                Console.WriteLine(reply.Element("action").Value + " " + reply.Element("version").Value);
            }
            await policy.EndSessionAsync(session);
        }
    }
}
